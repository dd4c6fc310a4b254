//! Becoming another user by sudo.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use zeroize::Zeroizing;

use super::{
    Link, RemoteError,
    channel::{ChannelError, Exit, Said},
    error::Trouble,
    script::{Become, NO_SCRIPT, Reads},
};

/// A sudo that asks a directory service may take its time.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// Lines behind the password, for a sudo that rejects a password it took before: it may ask again, and
/// must not be given lines of the script.
const PADDING: &str = "\n-\n-\n-\n-\n-\n-\n-\n-\n";

/// Whether sudo asks for a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sudo {
    IsSilent,
    WantsPassword,
}

/// Asks sudo without a password first, so that it is sent only where it is wanted. Then offers it once:
/// a wrong one costs one attempt, not all that an account may have before it is locked.
pub(super) async fn probe(link: &Arc<Link>, user: &str, password: &str) -> Result<Sudo, RemoteError> {
    if attempt(link, Become::Silently(user), None).await?.is_ok() {
        return Ok(Sudo::IsSilent);
    }
    match attempt(link, Become::WithPassword(user), Some(password)).await? {
        Ok(()) => Ok(Sudo::WantsPassword),
        Err(said) => Err(refused(user, &said, true)),
    }
}

/// What stands on stdin before the script.
pub(super) fn lines_before_script(as_whom: Become<'_>, password: Option<&Zeroizing<String>>) -> Option<Bytes> {
    match (as_whom, password) {
        (Become::WithPassword(_), Some(password)) => Some([password.as_bytes(), PADDING.as_bytes()].concat().into()),
        _ => None,
    }
}

/// Why sudo did not start our shell.
pub(super) fn refused(user: &str, said: &str, offered: bool) -> RemoteError {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let trouble = Trouble::new(match said.is_empty() {
        true => format!("cannot become `{user}`: sudo refused"),
        false => format!("cannot become `{user}`: {said}"),
    });
    RemoteError::Become(match offered {
        true => trouble.hint("the password given with -K may be wrong, or the user may not use sudo"),
        false => trouble.hint("pass -K to be prompted for the sudo password, or allow sudo without one"),
    })
}

/// Starts the bootstrap and gives it no script. Comes back with what was said if sudo did not let us.
async fn attempt(
    link: &Arc<Link>,
    as_whom: Become<'_>,
    password: Option<&str>,
) -> Result<Result<(), String>, RemoteError> {
    let (mut input, mut output) = link.start(as_whom, Reads::Exactly).await?;
    let work = async {
        if let Some(password) = password {
            input.write([password.as_bytes(), b"\n"].concat().into()).await?;
        }
        input.end().await?;
        let mut errors = Vec::new();
        while let Some(said) = output.next().await? {
            match said {
                Said::Ended(Exit::Code(NO_SCRIPT)) => return Ok(Ok(())),
                Said::Stderr(bytes) => errors.extend_from_slice(&bytes),
                Said::Stdout(_) | Said::Ended(_) => {}
            }
        }
        Ok(Err(String::from_utf8_lossy(&errors).into_owned()))
    };
    match tokio::time::timeout(PROBE_LIMIT, work).await {
        Ok(result) => result.map_err(|error: ChannelError| RemoteError::Unreachable(Trouble::from(error))),
        Err(_) => Err(RemoteError::Become(Trouble::new("sudo does not answer"))),
    }
}
