use super::*;

fn local(home: &Path) -> Local {
    Local { home: home.to_owned(), user: "me".to_owned() }
}

/// Looks `alias` up in a configuration of the given text.
fn lookup(text: &str, alias: &str) -> HostConfig {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config");
    std::fs::write(&file, text).unwrap();
    let local = local(home.path());
    let config = Config::load_file(&file, &local).unwrap();
    config.query(query(alias, &local)).unwrap()
}

fn query<'a>(alias: &'a str, local: &'a Local) -> Query<'a> {
    Query { alias, address: None, user: None, local }
}

#[test]
fn the_first_value_wins_and_identity_files_add_up() {
    let found = lookup(
        "IdentityFile ~/.ssh/first\n\
         Host hv1\n  User ops\n  Port 2222\n  IdentityFile=~/.ssh/second\n\
         Host hv*\n  User other\n  Port = 22\n  IdentityFile \"~/.ssh/with space\"\n",
        "hv1",
    );
    assert_eq!(found.user.as_deref(), Some("ops"));
    assert_eq!(found.port, Some(2222));
    let files = ["~/.ssh/first", "~/.ssh/second", "~/.ssh/with space"];
    assert_eq!(found.identity_files, files);
}

#[test]
fn patterns_and_negation_choose_blocks() {
    let text = "Host *.lab !bad.lab\n User lab\nHost *\n User anyone\n";
    assert_eq!(lookup(text, "good.lab").user.as_deref(), Some("lab"));
    assert_eq!(lookup(text, "bad.lab").user.as_deref(), Some("anyone"));
}

#[test]
fn match_knows_host_originalhost_user_and_all() {
    let text = "Host hv1\n HostName hv1.example.org\n User ops\n\
                Match host *.example.org user ops\n Port 1\n\
                Match originalhost hv1 !user ops\n Port 2\n\
                Match exec \"true\"\n ProxyCommand bad\n\
                Match all\n ConnectTimeout 1m30s\n";
    let found = lookup(text, "hv1");
    assert_eq!(found.port, Some(1));
    assert_eq!(found.proxy, None);
    assert_eq!(found.connect_timeout, Some(Duration::from_secs(90)));
    assert_eq!(lookup(text, "hv2").port, None);
}

#[test]
fn the_first_of_proxyjump_and_proxycommand_wins() {
    let jump = lookup("ProxyJump a,b:22\nProxyCommand nc %h %p\n", "x");
    let hops = vec!["a".to_owned(), "b:22".to_owned()];
    assert_eq!(jump.proxy, Some(ProxySetting::Jump(hops)));
    let command = lookup("ProxyCommand sh -c 'nc %h %p' # kept\nProxyJump a\n", "x");
    let line = "sh -c 'nc %h %p' # kept".to_owned();
    assert_eq!(command.proxy, Some(ProxySetting::Command(line)));
    let none = lookup("ProxyJump none\nProxyCommand nc\n", "x");
    assert_eq!(none.proxy, Some(ProxySetting::None));
}

#[test]
fn weaker_host_key_checking_is_not_honoured() {
    assert_eq!(lookup("StrictHostKeyChecking no\n", "x").strict_host_keys, Some(false));
    assert_eq!(lookup("StrictHostKeyChecking yes\n", "x").strict_host_keys, Some(true));
}

#[test]
fn includes_are_relative_to_the_ssh_folder_and_inherit_the_condition() {
    let home = tempfile::tempdir().unwrap();
    let ssh = home.path().join(".ssh");
    std::fs::create_dir_all(ssh.join("conf.d")).unwrap();
    std::fs::write(ssh.join("conf.d/20.conf"), "Port 20\n").unwrap();
    std::fs::write(ssh.join("conf.d/10.conf"), "Host *\n Port 10\n").unwrap();
    std::fs::write(ssh.join("conf.d/.hidden"), "Port 1\n").unwrap();
    std::fs::write(ssh.join("config"), "Host hv*\n Include conf.d/* ~/missing\nHost *\n User u\n").unwrap();
    let local = local(home.path());
    let config = Config::load_default(&local).unwrap();
    let inside = config.query(query("hv1", &local)).unwrap();
    assert_eq!((inside.port, inside.user.as_deref()), (Some(10), Some("u")));
    assert_eq!(config.query(query("other", &local)).unwrap().port, None);
}

#[test]
fn an_include_loop_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config");
    std::fs::write(&file, format!("Include {}\n", file.display())).unwrap();
    let error = Config::load_file(&file, &local(home.path())).unwrap_err();
    assert!(error.to_string().contains("nested too deeply"), "{error}");
}

#[test]
fn errors_name_file_and_line() {
    for (text, problem) in [
        ("\nPort x\n", "config:2: `x` is not a port"),
        ("User\n", "config:1: `user` has no value"),
        ("User \"a\n", "config:1: a quote is not closed"),
        ("IdentitiesOnly maybe\n", "config:1: `maybe` is neither yes nor no"),
        ("Match host\n", "config:1: `Match host` has no value"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config");
        std::fs::write(&file, text).unwrap();
        let local = local(home.path());
        let outcome = Config::load_file(&file, &local).and_then(|config| config.query(query("x", &local)));
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(?s).{0,200}", alias in ".{0,20}") {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config");
        std::fs::write(&file, text.replace("nclude", "")).unwrap();
        let local = local(home.path());
        if let Ok(config) = Config::load_file(&file, &local) {
            let _ = config.query(query(&alias, &local));
        }
    }
}
