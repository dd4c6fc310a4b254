//! Users of etcd, as its database has them.

use super::{
    RestoreError,
    bolt::Bolt,
    log::{Message, read_varint},
};

const BUCKET: &str = "authUsers";
/// What etcd itself takes if it is not told otherwise.
const COST: u32 = 10;
/// Fields of a user.
const PASSWORD: u64 = 2;
const OPTIONS: u64 = 4;

/// As etcd keeps a password.
pub fn password_hash(password: &str) -> Result<String, RestoreError> {
    bcrypt::hash(password, COST).map_err(|error| RestoreError::Io(std::io::Error::other(error.to_string())))
}

/// Gives a user a password, if there is such a user. What else is known of it stays.
pub(super) fn let_in(bolt: &mut Bolt, name: &str, hash: &str) -> Result<(), RestoreError> {
    if bolt.has_bucket(BUCKET) {
        bolt.change(BUCKET, name.as_bytes(), |user| with_password(user, hash))?;
    }
    Ok(())
}

/// The message without its password and its options, of which there is only one: that it has no password.
fn with_password(user: &[u8], hash: &str) -> Result<Vec<u8>, RestoreError> {
    let unreadable = || RestoreError::Foreign("it has a user that cannot be read".into());
    let (mut rest, mut kept) = (user, Vec::new());
    while !rest.is_empty() {
        let field = rest;
        let key = read_varint(&mut rest).ok_or_else(unreadable)?;
        match key & 7 {
            0 => {
                read_varint(&mut rest).ok_or_else(unreadable)?;
            }
            2 => {
                let length = read_varint(&mut rest).and_then(|length| usize::try_from(length).ok());
                rest = length.and_then(|length| rest.get(length..)).ok_or_else(unreadable)?;
            }
            _ => return Err(unreadable()),
        }
        if key >> 3 != PASSWORD && key >> 3 != OPTIONS {
            kept.extend(&field[..field.len() - rest.len()]);
        }
    }
    kept.extend(Message::default().bytes(PASSWORD as u8, hash.as_bytes()).0);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_a_password_and_keeps_the_rest() {
        let user = Message::default().bytes(1, b"root").bytes(2, b"old").bytes(3, b"root").bytes(3, b"other");
        let user = user.bytes(4, &Message::default().number(1, 1).0);
        let wanted = Message::default().bytes(1, b"root").bytes(3, b"root").bytes(3, b"other").bytes(2, b"new");
        assert_eq!(with_password(&user.0, "new").unwrap(), wanted.0);
        assert!(with_password(b"\x0a\xff", "new").is_err());
        assert!(bcrypt::verify("secret", &password_hash("secret").unwrap()).unwrap());
    }
}
