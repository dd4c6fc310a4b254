//! Playbooks and roles as files on disk: what they become once loaded.

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::{Project, tasks};
use etcdrun::{
    playbook::{BatchSize, Item, LoadOptions, Play, Playbook, TurnsOf},
    source::{Diagnostics, Sources, parse},
};

fn only(playbook: &Playbook) -> &Play {
    assert_eq!(playbook.plays.len(), 1);
    &playbook.plays[0]
}

#[test]
fn a_play_has_its_sections_in_order() {
    let project = Project::new(&[(
        "site.yaml",
        "- name: All\n  hosts: [web, 'db*']\n  serial: [1, '30%']\n  post_tasks: [{ping: }]\n  tasks:\n    - name: Say\n      command: echo hi\n    - copy: {dest: /etc/x, content: x}\n  pre_tasks:\n    - ping:\n",
    )]);
    let playbook = project.load();
    let play = only(&playbook);
    assert_eq!((play.name.as_str(), play.hosts.value.as_str()), ("All", "web,db*"));
    assert_eq!(play.sections.iter().map(|s| s.name).collect::<Vec<_>>(), ["pre_tasks", "tasks", "post_tasks"]);
    assert_eq!(tasks(play), ["ping", "Say", "copy /etc/x", "ping#2"]);
}

#[test]
fn blocks_pass_their_keywords_on() {
    let project = Project::new(&[(
        "site.yaml",
        r"
- hosts: all
  become: true
  tags: play
  environment: {A: 1}
  tasks:
    - block:
        - name: inner
          command: 'true'
          when: b
          tags: [task]
          become_user: etcd
          vars: {y: 2}
        - name: plain
          command: 'true'
          become: false
      rescue: [{name: saved, ping: }]
      always: [{name: last, ping: }]
      when: [a, c is defined]
      tags: x, y
      vars: {x: 1}
      environment: {B: 2}
      ignore_errors: true
",
    )]);
    let playbook = project.load();
    let play = only(&playbook);
    let Item::Block(block) = &play.sections[0].items[0] else { panic!("not a block") };
    assert_eq!((block.body.len(), block.rescue.len(), block.always.len()), (2, 1, 1));
    let inner = play.tasks(TurnsOf::Hosts)[0];
    let when: Vec<&str> = inner.when.iter().map(|w| &*w.value).collect();
    assert_eq!(when, ["a", "c is defined", "b"]);
    assert_eq!(inner.tags.iter().map(|t| &**t).collect::<Vec<_>>(), ["play", "x", "y", "task"]);
    assert_eq!((inner.r#become.wanted, inner.r#become.user.as_deref()), (Some(true), Some("etcd")));
    assert_eq!(inner.environment.len(), 2);
    assert!(inner.ignore_errors);
    let vars: Vec<&str> = inner.vars.iter().flat_map(|v| v.keys()).map(|k| &**k).collect();
    assert_eq!(vars, ["x", "y"]);
    assert_eq!(play.tasks(TurnsOf::Hosts)[1].r#become.wanted, Some(false));
}

#[test]
fn roles_bring_dependencies_handlers_and_variables() {
    let project = Project::new(&[
        (
            "site.yaml",
            "- hosts: all\n  roles:\n    - {role: web, port: 8080, when: go, tags: w}\n    - common\n  tasks:\n    - command: ls\n      notify: [Restart web, reload]\n",
        ),
        ("roles/web/tasks/main.yaml", "- import_tasks: more.yaml\n  vars: {z: 1}\n- name: Install\n  command: ls\n"),
        ("roles/web/tasks/more.yaml", "- name: Install\n  command: ls\n  notify: 'web : Restart web'\n"),
        ("roles/web/handlers/main.yml", "- name: Restart web\n  command: ls\n  listen: reload\n"),
        ("roles/web/defaults/main.yaml", "port: 80\nuser: www\n"),
        ("roles/web/vars/main.yaml", "fixed: 1\n"),
        (
            "roles/web/meta/main.yaml",
            "dependencies: [common, {role: base, level: '{{ port }}'}]\ngalaxy_info: {author: me}\n",
        ),
        ("roles/common/tasks/main.yaml", "- name: Common\n  ping:\n"),
        ("roles/base/tasks/main.yaml", "- name: Base\n  ping:\n"),
    ]);
    let playbook = project.load();
    let play = only(&playbook);
    // `common` under a condition is not the same as `common` without one.
    assert_eq!(
        tasks(play),
        ["common/Common", "base/Base", "web/Install", "web/Install#2", "common/Common#2", "command ls"]
    );
    let install = play.tasks(TurnsOf::Hosts)[2];
    let role = install.role.as_ref().unwrap();
    assert_eq!(role.defaults.keys().map(|k| &**k).collect::<Vec<_>>(), ["port", "user"]);
    assert_eq!(role.params.keys().map(|k| &**k).collect::<Vec<_>>(), ["port"]);
    assert_eq!(install.vars[0].keys().next().map(|k| &**k), Some("z"));
    assert_eq!((&*install.when[0].value, &*install.tags[0]), ("go", "w"));
    let base = play.tasks(TurnsOf::Hosts)[1].role.as_ref().unwrap();
    assert_eq!(base.chain().map(|r| &*r.name).collect::<Vec<_>>(), ["web", "base"]);
    assert_eq!(play.handlers_for("reload").count(), 1);
    assert_eq!(play.handlers_for("web : Restart web").count(), 1);
}

#[test]
fn a_role_used_twice_alike_runs_once() {
    let files = [
        ("site.yaml", "- hosts: all\n  roles: [a, a, {role: a, n: 1}, {role: a, n: 1}, {role: again}, again]\n"),
        ("roles/a/tasks/main.yaml", "- ping:\n"),
        ("roles/again/tasks/main.yaml", "- ping:\n"),
        ("roles/again/meta/main.yaml", "allow_duplicates: true\n"),
    ];
    let playbook = Project::new(&files).load();
    assert_eq!(tasks(only(&playbook)), ["a/ping", "a/ping#2", "again/ping", "again/ping#2"]);
}

#[test]
fn imported_playbooks_stand_in_place() {
    let files = [
        ("site.yaml", "- import_playbook: more/other.yaml\n  when: go\n  tags: t\n  vars: {x: 2}\n- hosts: b\n"),
        ("more/other.yaml", "- hosts: a\n  vars: {x: 1, y: 1}\n  roles: [r]\n"),
        ("more/roles/r/tasks/main.yaml", "- ping:\n"),
    ];
    let playbook = Project::new(&files).load();
    assert_eq!(playbook.plays.iter().map(|p| p.hosts.value.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let play = &playbook.plays[0];
    assert_eq!(play.vars.values().map(|v| v.to_value()).collect::<Vec<_>>(), [2, 1]);
    let task = play.tasks(TurnsOf::Hosts)[0];
    assert_eq!((&*task.when[0].value, &*task.tags[0]), ("go", "t"));
}

#[test]
fn a_shipped_playbook_can_be_imported_with_the_shipped_roles() {
    let files = [
        (
            "site.yaml",
            "- import_playbook: embedded:site.yaml\n- import_playbook: embedded:ping\n- hosts: b\n  roles: [guest]\n",
        ),
        ("ping.yaml", "- hosts: mine\n"),
        ("roles/guest/tasks/main.yaml", "- name: Mine\n  ping:\n"),
    ];
    let playbook = Project::new(&files).load();
    let names = |play: &Play| tasks(play).join(" ");
    let [site @ .., ping, own] = playbook.plays.as_slice() else { panic!() };
    assert!(!site.is_empty() && site.iter().all(|play| !names(play).contains("Mine")));
    assert_eq!((ping.hosts.value.as_str(), names(own).as_str()), ("all", "guest/Mine"));
}

#[test]
fn embedded_playbooks_load() {
    let playbook = Project::new(&[]).load_named("ping");
    assert_eq!(tasks(only(&playbook)), ["Ping the host"]);
}

#[test]
fn on_a_member_the_cluster_goes_without_saying() {
    let project = Project::new(&[(
        "site.yaml",
        r#"
- hosts: all
  tasks:
    - etcd_order:
    - etcd_order: { cluster: { members: "{{ during }}" } }
    - etcd_order:
      args: { cluster: { client_port: 4001 } }
    - pki_ca: { cluster: }
    - etcd_order: { cluster: { name: other } }
    - etcd_order: { cluster: "{{ another }}" }
    - guest_retire: { name: etcd-2, cluster: prod }
"#,
    )]);
    let playbook = project.load();
    let clusters: Vec<_> =
        only(&playbook).tasks(TurnsOf::Hosts).into_iter().map(|task| task.args.to_value()["cluster"].clone()).collect();
    let own = json!({
        "name": "{{ cluster.name }}",
        "members": "{{ cluster.members }}",
        "tls": "{{ cluster.tls }}",
        "auth": "{{ cluster.auth }}",
        "client_port": "{{ cluster.etcd.client_port | default(2379) }}",
        "peer_port": "{{ cluster.etcd.peer_port | default(2380) }}",
    });
    let own_but = |key: &str, value: Value| {
        let mut own = own.clone();
        own[key] = value;
        own
    };
    assert_eq!(clusters[0], own);
    assert_eq!(clusters[1], own_but("members", json!("{{ during }}")));
    assert_eq!(clusters[2], own_but("client_port", json!(4001)), "what `args` adds counts");
    let signs = json!({ "name": "{{ cluster.name }}", "tls": "{{ cluster.tls }}" });
    assert_eq!(clusters[3], signs, "nothing is rendered that it does not need");
    assert_eq!(clusters[4], json!({ "name": "other" }), "two clusters do not mix");
    assert_eq!(clusters[5], json!("{{ another }}"));
    assert_eq!(clusters[6], json!("prod"), "here it is a name");
}

#[test]
fn extra_variables_are_known_while_loading() {
    let project = Project::new(&[
        (
            "site.yaml",
            "- hosts: '{{ where }}'\n  serial: '{{ n }}'\n  tasks:\n    - import_tasks: '{{ os }}.yaml'\n      ignore_errors: '{{ n == 2 }}'\n",
        ),
        ("debian.yaml", "- ping:\n"),
    ]);
    let mut sources = Sources::default();
    let file = sources.add("-e", "{where: 'web:db', n: 2, os: debian}");
    let node = parse(&sources, file, &mut Diagnostics::default()).unwrap();
    let vars = node.as_map().unwrap().iter().map(|(key, node)| (key.name.clone(), node.clone())).collect();
    let options = LoadOptions { extra_vars: Arc::new(vars), ..project.options() };
    let (playbook, problems) = project.try_load("site.yaml", &options);
    let playbook = playbook.unwrap_or_else(|| panic!("{problems}"));
    let play = only(&playbook);
    assert_eq!((play.hosts.value.as_str(), play.serial.as_slice()), ("web:db", &[BatchSize::Count(2)][..]));
    assert!(play.tasks(TurnsOf::Hosts)[0].ignore_errors);
}
