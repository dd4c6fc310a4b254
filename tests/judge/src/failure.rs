//! What an error says about the request: whether it certainly had no effect.

use etcd_client::Error;

/// Codes of gRPC with which etcd refuses a request: before it proposes it, or when it applies it, on all members alike.
const REFUSALS: [i32; 6] = [
    3,  // invalid argument
    5,  // not found
    7,  // permission denied
    9,  // failed precondition
    12, // unimplemented
    16, // unauthenticated
];

#[derive(Debug)]
pub(crate) struct Failure {
    /// The request had no effect and never will.
    pub(crate) is_certain: bool,
    pub(crate) reason: String,
}

impl Failure {
    pub(crate) fn timed_out() -> Self {
        Self { is_certain: false, reason: "no answer in time".to_owned() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::GRpcStatus(status) => Self {
                is_certain: is_refusal(i32::from(status.code()), status.message()),
                reason: format!("{:?}: {}", status.code(), status.message()),
            },
            other => Self { is_certain: false, reason: other.to_string() },
        }
    }
}

/// A full database is no refusal, though etcd calls it one: the server that finds it full while it applies a write does apply it.
fn is_refusal(code: i32, message: &str) -> bool {
    // Other messages come from libraries, which know nothing of requests.
    let is_etcd = message.starts_with("etcdserver:");
    is_etcd && (REFUSALS.contains(&code) || message.contains("not supported for learner"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_etcd_are_certain() {
        assert!(is_refusal(7, "etcdserver: permission denied"));
        assert!(is_refusal(16, "etcdserver: invalid auth token"));
        assert!(is_refusal(3, "etcdserver: authentication failed, invalid user ID or password"));
        assert!(is_refusal(14, "etcdserver: rpc not supported for learner"));
        assert!(!is_refusal(3, "some library does not like it"));
        assert!(!is_refusal(14, "etcdserver: leader changed"));
        assert!(!is_refusal(14, "etcdserver: request timed out"));
        assert!(!is_refusal(8, "etcdserver: too many requests"));
    }

    #[test]
    fn a_write_that_found_the_database_full_may_have_happened() {
        assert!(!is_refusal(8, "etcdserver: mvcc: database space exceeded"));
    }
}
