use std::{env, process::ExitCode};

fn main() -> ExitCode {
    etcdrun::cli::main(env::args_os())
}
