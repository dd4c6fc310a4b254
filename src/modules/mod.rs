//! Modules: what a task calls. One file each, with typed arguments and a POSIX shell payload.
