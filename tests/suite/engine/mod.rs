//! Plays through the whole pipeline, over a real sshd.

mod basics;
mod faults;
mod fusion;
mod laws;
mod rollouts;
