//! `meantime ssd ctl`: a request to a software SSD in another process. `meantime_ssd::control` has
//! the protocol.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::CtlArgs;
use crate::failure::Failure;
use crate::output::end;

/// The time-out. It is longer than the SSD's own for its clients.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The longest answer that is accepted.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Runs the command.
pub(super) fn run(args: &CtlArgs) -> Result<ExitCode, Failure> {
    let line = args.words.join(" ");
    if line.contains(['\n', '\r']) {
        return Err(Failure::usage("a command is one line"));
    }
    end(ask(&args.socket, &line)?.as_bytes())
}

/// Returns the answer of the SSD behind `socket` to `line`, unchanged.
fn ask(socket: &Path, line: &str) -> Result<String, Failure> {
    let failed = |what: &str, error: std::io::Error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => ": is it the control socket of a running `meantime ssd`?",
            ErrorKind::ConnectionRefused => ": its process has ended",
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ": it does not answer",
            _ => "",
        };
        Failure::new(format_args!("{}: {what}: {error}{hint}", socket.display()))
    };
    let mut stream =
        UnixStream::connect(socket).map_err(|error| failed("cannot connect", error))?;
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))
        .map_err(|error| failed("cannot be used", error))?;
    // An SSD that answers before it has read everything (this user is not permitted) may have
    // closed.
    let sent = stream.write_all(format!("{line}\n").as_bytes());
    let mut news = String::new();
    let mut answer = BufReader::new(stream.take(ANSWER_BYTES_MAX));
    loop {
        let mut line = String::new();
        let got = answer.read_line(&mut line).map_err(|error| failed("no answer", error))?;
        match (got, line.trim_end_matches('\n')) {
            (0, _) => {
                sent.map_err(|error| failed("cannot be asked", error))?;
                return Err(failed("the answer ends early", ErrorKind::UnexpectedEof.into()));
            }
            (_, "ok") => return Ok(news),
            (_, line) => match (line.strip_prefix(' '), line.strip_prefix("error: ")) {
                (Some(text), _) => {
                    news.push_str(text);
                    news.push('\n');
                }
                (None, Some(why)) => return Err(Failure::new(why)),
                (None, None) => {
                    let text: String = line.chars().take(80).collect();
                    let why =
                        format!("{}: does not answer as an SSD would: {text:?}", socket.display());
                    return Err(Failure::new(why));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Returns the result of `faults` with a server that answers `answer`.
    fn asked(answer: &'static [u8]) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert_eq!(line, "faults\n");
            stream.write_all(answer).unwrap();
        });
        let asked = ask(&path, "faults").map_err(|failure| format!("{failure:?}"));
        server.join().unwrap();
        asked
    }

    #[test]
    fn answers_are_read() {
        assert_eq!(asked(b"ok\n").unwrap(), "");
        assert_eq!(asked(b" stray-cqe\n  two blanks\nok\n").unwrap(), "stray-cqe\n two blanks\n");
        assert!(asked(b"error: too many\n").unwrap_err().contains("too many"));
        assert!(asked(b" half").unwrap_err().contains("ends early"));
        assert!(asked(b"HTTP/1.1 400\n").unwrap_err().contains("as an SSD would"));
        assert!(asked(b"\xff\xfe\n").unwrap_err().contains("no answer"));
    }

    #[test]
    fn a_socket_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let why = format!("{:?}", ask(&path, "faults").unwrap_err());
        assert!(why.contains("ctl") && why.contains("meantime ssd"), "{why}");
        drop(UnixListener::bind(&path).unwrap());
        assert!(format!("{:?}", ask(&path, "faults").unwrap_err()).contains("has ended"));
    }
}
