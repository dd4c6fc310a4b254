//! Words that a shell does not take for the name of a program.

/// What one shell or the other does by itself.
const BUILTINS: &[&str] = &[
    ".",
    ":",
    "[",
    "[[",
    "alias",
    "autoload",
    "bg",
    "bind",
    "break",
    "builtin",
    "bye",
    "caller",
    "cat",
    "cd",
    "chdir",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disown",
    "echo",
    "emulate",
    "enable",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "float",
    "functions",
    "getconf",
    "getopts",
    "global",
    "hash",
    "help",
    "hist",
    "history",
    "integer",
    "jobs",
    "kill",
    "let",
    "local",
    "login",
    "logout",
    "mapfile",
    "mknod",
    "nameref",
    "newgrp",
    "noglob",
    "popd",
    "print",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "realpath",
    "rehash",
    "rename",
    "return",
    "set",
    "setopt",
    "shift",
    "shopt",
    "sleep",
    "source",
    "stop",
    "suspend",
    "sync",
    "test",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unlink",
    "unset",
    "unsetopt",
    "wait",
    "whence",
    "where",
    "which",
];

/// What the scripts that we send have under such a name; all else there begins with an underscore.
const OURS: &[&str] = &[
    "changed",
    "fail",
    "have",
    "mutate",
    "note",
    "result",
    "result_bool",
    "result_int",
    "result_json",
    "show_after",
    "show_before",
    "sum_of_much",
    "tmp_dir",
    "unknown",
];

/// Whether a shell that runs our scripts may have something else to run by this name than a program.
pub fn is_shell_word(name: &str) -> bool {
    name.starts_with('_') || BUILTINS.contains(&name) || OURS.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn all_that_our_scripts_define_is_known() {
        let sent = [
            include_str!("prelude.sh"),
            include_str!("own.sh"),
            include_str!("places.sh"),
            include_str!("ledger.sh"),
            include_str!("fence.sh"),
            include_str!("watch.sh"),
            include_str!("check.sh"),
        ];
        let mut functions = 0;
        for line in sent.iter().flat_map(|script| script.lines()) {
            // What is indented is shut off in check mode, in a subshell of its own.
            if let Some((name, _)) = line.split_once("() ").filter(|(name, _)| !name.contains(['\t', ' ', '#'])) {
                functions += 1;
                assert!(is_shell_word(name), "{name}");
            }
        }
        assert!(functions > 30, "{functions}");
    }

    #[test]
    fn all_that_the_shells_here_have_built_in_is_known() {
        let bash = Command::new("bash").args(["-c", "compgen -b"]).output().unwrap();
        let busybox = Command::new("busybox").args(["sh", "-c", "help"]).output().unwrap();
        let (bash, busybox) = (String::from_utf8_lossy(&bash.stdout), String::from_utf8_lossy(&busybox.stdout));
        let mut names = 0;
        // Behind its title.
        for name in bash.lines().chain(busybox.lines().skip(2).flat_map(str::split_whitespace)) {
            names += 1;
            assert!(is_shell_word(name), "{name}");
        }
        assert!(names > 80, "{names}\n{busybox}");
    }
}
