//! Arguments that are wrong are refused when a playbook is loaded.

use super::support::problems;

#[test]
fn right_arguments_are_accepted() {
    for (module, args) in [
        ("command", "ls -l"),
        ("command", "{argv: [ls, -l], creates: /x}"),
        ("shell", "{cmd: ls, executable: /bin/bash}"),
        ("script", "x.sh"),
        ("copy", "{content: {a: 1}, dest: /x, mode: '0644'}"),
        ("copy", "{src: '{{ a }}', dest: '{{ b }}', mode: '{{ c }}', backup: '{{ d }}'}"),
        ("template", "{src: x.j2, dest: /x, validate: 'visudo -cf %s'}"),
        ("file", "{path: /x, state: link, src: y}"),
        ("file", "{dest: /x, state: '{{ s }}', src: '{{ y }}'}"),
        ("line_in_file", "{path: /x, line: y}"),
        ("line_in_file", "{path: /x, regexp: y, state: absent}"),
        ("fetch", "{src: /x, dest: y}"),
        ("download", "{url: 'https://x/y', dest: /x, sha256: '{{ sum }}'}"),
        ("download", "{url: 'https://x/y', dest: /x, unverified: true, via: operator, timeout: 2m}"),
        ("unarchive", "{src: x.tgz, dest: /x, strip_components: 1}"),
    ] {
        assert_eq!(problems(module, args), [""; 0], "{module} {args}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (module, args, expected) in [
        ("command", "{cmd: a, argv: [b]}", "`cmd` and `argv` exclude each other"),
        ("command", "{chdir: /x}", "`command` needs `cmd` or `argv`"),
        ("shell", "{creates: /x}", "`cmd` is missing"),
        ("copy", "{src: a, content: b, dest: /x}", "`src` and `content` exclude each other"),
        ("copy", "{dest: /x}", "`copy` needs `src` or `content`"),
        ("copy", "{src: a}", "`dest` is missing"),
        ("copy", "{content: a, dest: /x, remote_src: true}", "`remote_src` needs `src`"),
        (
            "copy",
            "{content: a, dest: /x, validate: visudo}",
            "`validate` must contain %s, which stands for the new file",
        ),
        ("copy", "{content: a, dest: /x, onwer: me}", "unknown key `onwer`"),
        ("file", "{path: /x, state: link}", "`state: link` needs `src`, the target of the link"),
        ("file", "{path: /x, state: absent, src: y}", "`src` goes with `state: link` or `state: hard`"),
        ("file", "{path: /x, recurse: true}", "`recurse` needs `state: directory`"),
        ("line_in_file", "{path: /x}", "`line_in_file` needs `line`, or `regexp` to remove lines"),
        (
            "line_in_file",
            "{path: /x, line: y, insertafter: a, insertbefore: b}",
            "`insertafter` and `insertbefore` exclude each other",
        ),
        ("line_in_file", "{path: /x, line: y, backrefs: true}", "`backrefs` needs `regexp`, whose groups it refers to"),
        ("download", "{url: x, dest: y, sha256: z, unverified: true}", "`sha256` and `unverified` exclude each other"),
        ("unarchive", "[a, b]", "`unarchive` takes a mapping of arguments, found a list"),
    ] {
        assert_eq!(problems(module, args), [expected], "{module} {args}");
    }
}
