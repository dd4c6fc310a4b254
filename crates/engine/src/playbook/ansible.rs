//! Ansible's modules that go by another name here.

/// What to use in place of a module of Ansible.
pub(super) fn instead_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "apt" | "yum" | "dnf" | "dnf5" | "zypper" | "apk" => "use `package`; it works with apt and dnf",
        "lineinfile" => "use `line_in_file`",
        "blockinfile" | "replace" => "use `line_in_file` for single lines, or `template` for the complete file",
        "get_url" => "use `download`",
        "systemd" | "systemd_service" | "sysvinit" => "use `service` to start and stop, `systemd_unit` to write a unit",
        "uri" => "use `wait_for` with `http`, or `download`",
        "setup" | "gather_facts" => "facts are gathered when something reads them; no task is needed",
        "slurp" => "use `fetch`, or `command: cat` with `register`",
        "stat" => "use `command: test -e ...`, or the `creates` argument of `command`",
        "raw" => "use `shell`; no Python is needed on hosts here",
        "include" => "use `import_tasks`",
        "import_playbook" => "it is an entry of a playbook, next to the plays, and not a task",
        "include_vars" => "use `vars_files` of the play, or the role's `vars/`",
        "parted" => "use `filesystem`, on the complete disk or on an existing partition",
        "synchronize" => "use `copy` or `unarchive`",
        "pause" => "use `wait_for`, which waits for a condition",
        "add_host" | "group_by" => "hosts and groups are those of the inventory; they do not change during a run",
        "expect" => "use `command` with `stdin`",
        "hostname" | "cron" | "iptables" | "selinux" | "git" => "use `command`, with `creates` or `changed_when`",
        _ => return None,
    })
}
