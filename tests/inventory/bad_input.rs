//! Bad inventories: every problem at once, each with its place and a way out.

use crate::support::load;

#[test]
fn nothing_yet() {
    assert_eq!(load("").problems(), "");
}
