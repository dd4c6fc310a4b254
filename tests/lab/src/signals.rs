//! Signals that must not end the program before it has cleaned up.

#![allow(unsafe_code, reason = "the handler does nothing, which is safe at any moment")]

extern "C" fn nothing(_: libc::c_int) {}

/// Goes on after an interrupt. Not by ignoring it: that would be passed on to the programs that are started.
pub fn outlive_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler touches nothing.
        unsafe { libc::signal(signal, nothing as *const () as libc::sighandler_t) };
    }
}
