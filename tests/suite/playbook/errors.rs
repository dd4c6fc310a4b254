//! What a person reads when a playbook or role is wrong.

use super::support::Project;

/// What is asserted is in the test itself, so the snapshot keeps only the result.
macro_rules! snapshot {
    ($text:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($text) })
    };
}

fn problems(files: &[(&str, &str)]) -> String {
    Project::new(files).problems()
}

fn problems_of(text: &str) -> String {
    problems(&[("site.yaml", text)])
}

#[test]
fn unknown_keys() {
    snapshot!(problems_of(
        r"
- hosts: all
  tsaks: []
  when: x
  remote_user: root
  tasks:
    - command: ls
      whem: x
      ignore_error: true
      zzz: 1
    - block: [{ping: }]
      loop: [1]
      resuce: []
    - whem: y
    - name: nothing
    - command: ls
      copy: {dest: /x, content: x}
    - comand: ls
    - apt: {name: x}
    - community.general.thing: {}
    - local_action: command ls
    - command: ls
      listen: x
    - command: ls
      with_dict: {}
    - command: ls
      loop: [1]
      loop_control: {loopvar: x}
    - command: ls
      needs: {tsk: x}
"
    ));
}

#[test]
fn wrong_types() {
    snapshot!(problems_of(
        r"
- hosts: all
  become: yes
  become_method: su
  serial: [0, '200%', {a: 1}]
  max_fail_percentage: lots
  strategy: linear
  order: shuffle
  collections: [x]
  gather_facts: maybe
  vars: [a]
  environment: {A: [1]}
  tasks:
    - command: ls
      retries: many
      delay: 5 parsecs
      timeout: {}
      register: my-result
      when: {a: 1}
      until: ''
      on: hypervizor
      once_per: rack
      tags: {a: 1}
      notify: {a: 1}
      loop: 3
      needs: [{hosts: all}]
      delegate_to: [a]
      args: 3
      poll: -1
    - command: ls
      loop_control: {loop_var: x}
    - command: ls
      loop: [1]
      with_items: [1]
    - command: ls
      on: operator
      delegate_to: x
    - copy: src=a dest=b
    - command: make creates=/x
    - command: {cmd: ls}
      args: {cmd: ls}
    - copy: {dset: /x}
    - 3
  handlers:
    - block: []
    - import_role: {name: x}
  roles: {a: 1}
  pre_tasks: ls
"
    ));
}

#[test]
fn clusters_that_are_none() {
    snapshot!(problems_of(
        r"
- hosts: all
  tasks:
    - etcd_gate: {cluster: prod, members: [], profile: restart}
    - pki_ca: {cluster: 3}
    - etcd_order: {cluster: {nmae: prod}}
"
    ));
}

#[test]
fn plays_that_are_none() {
    snapshot!(problems_of("- tasks: []\n- hosts: \n- hosts: []\n- hosts: ''\n- host: all\n- x\n"));
    snapshot!(problems_of("hosts: all\ntasks: []\n"));
    snapshot!(problems_of(""));
    snapshot!(problems_of("just text\n"));
}

#[test]
fn the_shape_is_static() {
    snapshot!(problems_of(
        r#"
- hosts: "{{ where }}"
  serial: "{{ n }}"
  roles: ["{{ r }}"]
  tasks:
    - import_tasks: "{{ os }}.yaml"
    - include_role: {name: "{{ r }}"}
    - include_tasks: x.yaml
      loop: [1, 2]
    - command: ls
      notify: "restart {{ x }}"
      retries: "{{ n }}"
    - meta: end_play
    - meta: flush_handlers
      when: x
- import_playbook: "{{ p }}"
"#
    ));
}

#[test]
fn names_that_lead_nowhere() {
    snapshot!(problems(&[
        (
            "site.yaml",
            r"
- hosts: all
  vars_files: [missing.yaml, roles]
  roles: [wbe, {tags: x}, {role: web, whne: x}]
  tasks:
    - import_tasks: nowhere.yaml
    - import_tasks: roles
    - import_role: {name: web, tasks_from: instal}
    - import_role: {tasks_from: x}
    - import_tasks: {fil: x}
    - name: One
      command: ls
      notify: [Restart wbe, nobody at all]
      needs: [Oen, One]
- import_playbook: nothing.yaml
- import_playbook: embedded:pinh.yaml
"
        ),
        ("roles/web/tasks/install.yaml", "- ping:\n"),
        ("roles/web/handlers/main.yaml", "- name: Restart web\n  ping:\n"),
    ]));
}

#[test]
fn role_arguments() {
    snapshot!(problems(&[
        (
            "site.yaml",
            r"
- hosts: all
  vars: {given: 1}
  roles:
    - role: web
      prot: 80
      port: many
      mode: fsat
      quota: 8 elephants
      wait: 30s
      peers: [{nmae: a}, b, {name: c, weight: heavy}]
      later: '{{ x }}'
    - role: web
      vars: {name: n, port: 80, mode: fast}
"
        ),
        (
            "roles/web/meta/main.yaml",
            r"
arguments:
  name: {required: true, description: What it is called}
  given: {required: true}
  port: {type: int, default: 80}
  mode: {choices: [fast, slow], default: medium}
  quota: {type: size}
  wait: {type: duration}
  later: {type: list}
  peers: {type: list, elements: dict, options: {name: {required: true}, weight: {type: int}}}
"
        ),
        ("roles/web/tasks/main.yaml", "- ping:\n"),
    ]));
}

#[test]
fn role_meta() {
    snapshot!(problems(&[
        ("site.yaml", "- hosts: all\n  roles: [a, b]\n"),
        ("roles/a/meta/main.yaml", "dependancies: []\narguments: {x: {typ: int}, y: {type: integer}}\n"),
        ("roles/b/meta/main.yaml", "[]\n"),
        ("roles/b/defaults/main.yaml", "- x\n"),
        ("roles/b/vars/main.yaml", "a-b: 1\n"),
    ]));
}

#[test]
fn import_loops() {
    snapshot!(problems(&[
        (
            "site.yaml",
            "- hosts: all\n  tasks:\n    - import_tasks: a.yaml\n  roles: [r]\n- import_playbook: site.yaml\n"
        ),
        ("a.yaml", "- block:\n    - import_tasks: b.yaml\n"),
        ("b.yaml", "- ping:\n- include_tasks: a.yaml\n"),
        ("roles/r/meta/main.yaml", "dependencies: [s]\n"),
        ("roles/s/tasks/main.yaml", "- import_role: {name: r}\n"),
    ]));
}

#[test]
fn files_that_are_none() {
    let project = Project::new(&[
        ("site.yaml", "- hosts: all\n  vars_files: [junk, deep.yaml, bomb.yaml, double.yaml, two.yaml, tab.yaml]\n"),
        ("double.yaml", "a: 1\na: 2\n"),
        ("two.yaml", "a: 1\n---\nb: 1\n"),
        ("tab.yaml", "a:\n\tb: 1\n"),
    ]);
    project.write("junk", b"\x00\xff\xfe\x01");
    project.write("deep.yaml", "- ".repeat(5000).as_bytes());
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        bomb += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "));
    }
    project.write("bomb.yaml", bomb.as_bytes());
    snapshot!(project.problems());
    snapshot!(project.try_load("nowhere", &project.options()).1);
    snapshot!(project.try_load(".", &project.options()).1);
}

#[test]
fn a_hundred_megabytes_are_not_read() {
    let project = Project::new(&[]);
    let file = std::fs::File::create(project.path().join("site.yaml")).unwrap();
    file.set_len(100 << 20).unwrap();
    snapshot!(project.problems());
}

#[test]
fn handlers_with_one_name() {
    snapshot!(problems_of(
        "- hosts: all\n  handlers:\n    - {name: Restart, ping: }\n    - {name: Restart, ping: }\n    - import_tasks: nope.yaml\n    - meta: flush_handlers\n"
    ));
}

#[test]
fn old_ways_are_warned_about() {
    let project = Project::new(&[(
        "site.yaml",
        "- hosts: all\n  tasks:\n    - command: ls\n      with_items: [1, [2, 3]]\n      when: '{{ x }}'\n    - command: ls\n      when: '{{ x }} == 1'\n",
    )]);
    snapshot!(project.problems());
}

#[test]
fn imports_that_double_end() {
    let mut files: Vec<(String, String)> =
        vec![("site.yaml".into(), "- hosts: all\n  tasks: [{import_tasks: f0.yaml}]\n".into())];
    for n in 0..30 {
        files.push((format!("f{n}.yaml"), format!("- import_tasks: f{0}.yaml\n- import_tasks: f{0}.yaml\n", n + 1)));
    }
    files.push(("f30.yaml".into(), "[]".into()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let found = problems(&files);
    assert!(found.contains("more than 50000 imports"), "{found}");
}

#[test]
fn nesting_ends() {
    let mut files: Vec<(String, String)> =
        vec![("site.yaml".into(), "- hosts: all\n  tasks: [{import_tasks: f0.yaml}]\n".into())];
    let nested = |inner: &str| (0..20).fold(inner.to_owned(), |inner, _| format!("{{block: [{inner}]}}"));
    for n in 0..30 {
        files.push((format!("f{n}.yaml"), format!("- {}\n", nested(&format!("{{import_tasks: f{}.yaml}}", n + 1)))));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let found = problems(&files);
    assert!(found.contains("nested more than 40 deep"), "{found}");
}

#[test]
fn templates_that_never_render() {
    snapshot!(problems_of(
        r#"
- hosts: all
  vars: {a: "{{ x | defualt(1) }}", c: ["{{ }}"]}
  tasks:
    - command: echo {{ x
      when: [x is defind, x ==, x | bool]
      failed_when: frobnicate(x)
      loop: "{{ [1, 2 }}"
      loop_control: {label: "{{ item | upperr }}"}
      environment: {A: "{% if %}"}
      delegate_to: "{{ (x }}"
    - name: "Say {{ x | lowr }}"
      copy:
        dest: /x
        content: |
          one
          {{ y | nope }}
"#
    ));
}

#[test]
fn secrets_stay_out_of_the_environment() {
    snapshot!(problems(&[
        (
            "site.yaml",
            r#"
- hosts: all
  vars:
    password: !age AAAA
    url: "http://u:{{ password }}@h/"
    db: {user: u, secret: !age BBBB}
  environment: {TOKEN: !age CCCC}
  roles: [r]
  tasks:
    - command: ls
      environment: {P: "{{ password }}", U: "{{ url }}", D: "{{ db.secret }}", OK: "{{ db.user }}", LATER: "{{ other }}"}
    - command: ls
      environment: "{{ db }}"
"#
        ),
        ("roles/r/defaults/main.yaml", "key: !age DDDD\n"),
        ("roles/r/tasks/main.yaml", "- command: ls\n  environment: {K: '{{ key }}'}\n"),
    ]));
}

#[test]
fn a_strategy_that_does_not_say_who_is_next_is_found_when_it_is_loaded() {
    const PLAY: &str = "- hosts: all\n  rollout: { strategy: serial }\n  tasks: [{ ping: }]\n";
    let next = |text: &str| problems(&[("site.yaml", PLAY), ("roles/rollout_serial/tasks/next.yaml", text)]);
    let found = next("- etcd_order:\n");
    assert!(
        found.contains("the role `rollout_serial` does not register `rollout_next.order` in tasks/next.yaml"),
        "{found}"
    );
    assert!(found.contains("add `register: rollout_next` to a task whose module returns `order`"), "{found}");
    let found = next("- command: ls\n  register: rollout_next\n");
    assert!(found.contains("does not register `rollout_next.order`"), "{found}");
    let found = next("- etcd_order:\n  register: rollout_next\n");
    assert!(!found.contains("does not register"), "{found}");
}

#[test]
fn a_strategy_may_be_a_role_of_the_user() {
    let play = |name: &str| format!("- hosts: all\n  rollout: {{ strategy: {name} }}\n  tasks: [{{ ping: }}]\n");
    let role = ("roles/rollout_mine/tasks/before.yaml", "- ping:\n");
    assert_eq!(problems(&[("site.yaml", &play("mine")), role]), "");
    let found = problems(&[("site.yaml", &play("seriel")), role]);
    assert!(found.contains("there is no strategy `seriel`") && found.contains("did you mean `serial`?"), "{found}");
    let found = problems(&[("site.yaml", &play("other")), role]);
    assert!(
        found.contains("there are etcd, mine, patroni, serial; one of your own is a role `rollout_other`"),
        "{found}"
    );
    let found = problems(&[("site.yaml", &play("../../x"))]);
    assert!(found.contains("there is no strategy `../../x`"), "{found}");
    let found = problems(&[("site.yaml", &play("patroni, max_unavailable: 2"))]);
    assert!(found.contains("`strategy: patroni` gives one host a turn at a time"), "{found}");
    let found = problems(&[("site.yaml", &play("patroni, upgrade: true"))]);
    assert!(found.contains("`strategy: patroni` does not support versions"), "{found}");
}
