//! Users by name or number.

use std::process::{Command, Stdio};

use crate::failure::Failure;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// The name, or the number without a name.
    pub name: String,
    /// The user's number.
    pub uid: u32,
    /// The number of the user's own group.
    pub gid: u32,
}

impl User {
    /// Finds the user with that name or number.
    pub(crate) fn find(text: &str) -> Result<Self, Failure> {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let found = in_passwd(&passwd, text).or_else(|| in_passwd(&ask_directories(text)?, text));
        // A number is valid without a name.
        let number = || text.parse().ok().map(|uid| Self { name: text.to_owned(), uid, gid: uid });
        found.or_else(number).ok_or_else(|| {
            Failure::usage(format_args!(
                "--owner {text}: there is no such user; give a name or a number"
            ))
        })
    }
}

/// Asks directory services, which only the C library can reach.
fn ask_directories(text: &str) -> Option<String> {
    let mut getent = Command::new("getent");
    let output =
        getent.args(["passwd", "--", text]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    String::from_utf8(output.ok()?.stdout).ok()
}

/// Searches passwd(5): name, password, user, group, …
fn in_passwd(passwd: &str, text: &str) -> Option<User> {
    let users = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let uid = fields.nth(1)?.parse().ok()?;
        Some(User { name, uid, gid: fields.next()?.parse().ok()? })
    });
    let users: Vec<User> = users.collect();
    let by_name = users.iter().find(|user| user.name == text);
    by_name.or_else(|| users.iter().find(|user| text.parse() == Ok(user.uid))).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_and_by_number() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nodd line\neve:x:1000:100:E:/home/eve:/bin/sh\n";
        let eve = User { name: "eve".into(), uid: 1000, gid: 100 };
        assert_eq!(in_passwd(passwd, "eve"), Some(eve.clone()));
        assert_eq!(in_passwd(passwd, "1000"), Some(eve));
        assert_eq!(in_passwd(passwd, "adam"), None);
        assert_eq!(User::find("root").unwrap().uid, 0);
        assert_eq!(User::find("4294967294").unwrap().gid, 4_294_967_294);
        assert!(User::find("no such user").is_err());
    }
}
