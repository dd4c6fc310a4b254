//! Runs that are kept, broken off and resumed, with the program itself and a real sshd.

mod crashes;
mod interrupts;
mod keeping;
mod locks;
mod lost;
mod strangers;
mod support;
mod turns;
mod unlocking;
