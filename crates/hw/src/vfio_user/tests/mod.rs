//! The client against good and bad servers.

mod bad_replies;
mod ended;
mod fake;
mod start_up;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::*;
use fake::{Message, Script, State};

/// Short, for servers that never answer.
const QUICK: UserOptions = UserOptions { timeout_ns: 100_000_000 };
/// Long enough for a busy machine.
const PATIENT: UserOptions = UserOptions { timeout_ns: 30_000_000_000 };

/// A driver's operations. The servers here access no memory that the tests use otherwise.
trait Drive {
    fn put32(&self, offset: u32, value: u32);
    fn put64(&self, offset: u32, value: u64);
    fn bell(&self, offset: u32) -> Result<Doorbell>;
    fn unmap(&self, iova: u64) -> Result<()>;
}

impl Drive for UserTransport {
    fn put32(&self, offset: u32, value: u32) {
        // SAFETY: the server is a test, and reaches no memory of ours but `shared_pages`, which
        // nobody looks at.
        unsafe { self.write32(offset, value) };
    }
    fn put64(&self, offset: u32, value: u64) {
        // SAFETY: as above.
        unsafe { self.write64(offset, value) };
    }
    fn bell(&self, offset: u32) -> Result<Doorbell> {
        // SAFETY: as above.
        unsafe { self.doorbell(offset) }
    }
    fn unmap(&self, iova: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.unmap_dma(iova) }
    }
}

struct Served {
    transport: UserTransport,
    seen: Arc<Mutex<Vec<Message>>>,
    server: JoinHandle<State>,
}

impl Served {
    /// The messages that the server has received, and the final state of its device.
    fn end(self) -> (Vec<Message>, State) {
        drop(self.transport);
        let state = self.server.join().unwrap();
        let seen = Arc::try_unwrap(self.seen).unwrap().into_inner().unwrap();
        (seen, state)
    }
}

fn attach(state: State, script: Script, options: &UserOptions) -> Result<Served> {
    let (stream, seen, server) = fake::start(state, script);
    UserTransport::over(stream, "fake".into(), options).map(|transport| Served {
        transport,
        seen,
        server,
    })
}

/// A good server.
fn good() -> Served {
    attach(State::new(), Box::new(|_| None), &PATIENT).unwrap()
}

/// The error for a server that follows `script`.
fn refused(
    script: impl FnMut(&Message) -> Option<fake::Answer> + Send + 'static,
    options: &UserOptions,
) -> String {
    match attach(State::new(), Box::new(script), options) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    }
}

fn shared_pages() -> Arc<Pages> {
    let limits = DmaLimits { shared: true, ..DmaLimits::default() };
    Arc::new(Pages::map(2 << 20, &limits).unwrap())
}
