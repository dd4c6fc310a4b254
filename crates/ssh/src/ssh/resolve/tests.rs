use super::*;

struct Setup {
    _home: tempfile::TempDir,
    local: Local,
    config: Config,
    hosts: HashMap<String, Endpoint>,
}

impl Setup {
    fn new(text: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config");
        std::fs::write(&file, text).unwrap();
        let local = Local { home: "/home/me".into(), user: "me".to_owned() };
        let config = Config::load_file(&file, &local).unwrap();
        Setup { _home: home, local, config, hosts: HashMap::new() }
    }

    fn resolve(&self, endpoint: &Endpoint) -> Result<Resolved, SshError> {
        let resolver = Resolver {
            config: &self.config,
            local: &self.local,
            hosts: &self.hosts,
            connect_timeout: Duration::from_secs(10),
            accept_new: true,
            pins: Some(Path::new("/state/known_hosts")),
        };
        resolver.resolve(endpoint)
    }

    fn chain(&self, endpoint: &Endpoint) -> Vec<String> {
        match self.resolve(endpoint).unwrap().proxy {
            Proxy::Jump(hops) => hops.iter().map(Resolved::target).collect(),
            other => panic!("no jumps: {other:?}"),
        }
    }
}

#[test]
fn defaults_are_those_of_ssh() {
    let found = Setup::new("").resolve(&Endpoint::new("hv1")).unwrap();
    assert_eq!(found.target(), "me@hv1:22");
    assert_eq!(
        found.identity_files,
        ["id_rsa", "id_ecdsa", "id_ed25519"].map(|n| PathBuf::from("/home/me/.ssh").join(n))
    );
    assert!(found.required_identities == 0 && !found.identities_only && found.accept_new);
    assert_eq!(found.user_known_hosts[0], PathBuf::from("/home/me/.ssh/known_hosts"));
    assert_eq!(found.proxy, Proxy::Direct);
}

#[test]
fn the_inventory_wins_over_the_configuration() {
    let setup = Setup::new(
        "Host hv1\n HostName %h.lab\n User ops\n Port 2200\n IdentityFile ~/k/%r@%h\n\
         UserKnownHostsFile ~/kh\n StrictHostKeyChecking yes\n IdentitiesOnly yes\n",
    );
    let found = setup.resolve(&Endpoint::new("hv1")).unwrap();
    assert_eq!(found.target(), "ops@hv1.lab:2200");
    assert_eq!(found.identity_files, [PathBuf::from("/home/me/k/ops@hv1.lab")]);
    assert_eq!(found.user_known_hosts, [PathBuf::from("/home/me/kh")]);
    assert!(!found.accept_new && found.identities_only);

    let endpoint = Endpoint {
        address: Some("10.0.0.1".to_owned()),
        user: Some("root".to_owned()),
        port: Some(22),
        identity_files: vec!["~/own%h".into()],
        known_hosts: vec!["/kh".into()],
        identities_only: Some(false),
        ..Endpoint::new("hv1")
    };
    let found = setup.resolve(&endpoint).unwrap();
    assert_eq!(found.target(), "root@10.0.0.1:22");
    assert_eq!(found.identity_files[0], PathBuf::from("/home/me/own%h"));
    assert_eq!(found.user_known_hosts[0], PathBuf::from("/kh"));
    assert!(!found.identities_only);
}

#[test]
fn a_guest_is_believed_by_its_pin_and_nothing_else() {
    let setup = Setup::new("Host *\n  StrictHostKeyChecking accept-new\n");
    let guest =
        Endpoint { pin: Some("prod/etcd-1".to_owned()), known_hosts: vec!["/kh".into()], ..Endpoint::new("etcd-1") };
    let found = setup.resolve(&guest).unwrap();
    assert_eq!(found.host_key_alias.as_deref(), Some("prod/etcd-1"));
    assert_eq!(found.user_known_hosts, [PathBuf::from("/state/known_hosts")]);
    assert!(found.global_known_hosts.is_empty() && !found.accept_new);

    let own_way = Endpoint { host_key_alias: Some("mine".to_owned()), ..guest };
    assert_eq!(setup.resolve(&own_way).unwrap().user_known_hosts[0], PathBuf::from("/kh"));
}

#[test]
fn jump_chains_flatten_and_may_name_inventory_hosts() {
    let mut setup = Setup::new(
        "Host gate\n HostName 10.9.9.9\n User g\n ProxyJump outer\n\
         Host outer\n Port 2022\n\
         Host inner\n ProxyJump never\n",
    );
    let hv = Endpoint { address: Some("10.0.0.7".to_owned()), user: Some("ops".to_owned()), ..Endpoint::new("hv7") };
    setup.hosts.insert("hv7".to_owned(), hv);
    let endpoint =
        Endpoint { jump: ["gate", "x@inner:77", "hv7"].map(str::to_owned).into(), ..Endpoint::new("etcd-1") };
    assert_eq!(setup.chain(&endpoint), ["me@outer:2022", "g@10.9.9.9:22", "x@inner:77", "ops@10.0.0.7:22"]);
    let direct = Endpoint { jump: vec!["none".to_owned()], ..Endpoint::new("gate") };
    assert_eq!(setup.resolve(&direct).unwrap().proxy, Proxy::Direct);
}

#[test]
fn jump_hosts_parse_with_ipv6_and_refuse_nonsense() {
    let setup = Setup::new("");
    let through = |jump: &str| Endpoint { jump: vec![jump.to_owned()], ..Endpoint::new("x") };
    assert_eq!(setup.chain(&through("u@[fe80::1]:2")), ["u@[fe80::1]:2"]);
    assert_eq!(setup.chain(&through("fe80::1")), ["me@[fe80::1]:22"]);
    assert_eq!(setup.chain(&through("ssh://a:5")), ["me@a:5"]);
    for nonsense in ["@a", "a:port", "u@", "[a", ""] {
        let error = setup.resolve(&through(nonsense)).unwrap_err().to_string();
        assert!(error.contains("is not a jump host"), "{error}");
    }
}

#[test]
fn a_jump_loop_is_an_error() {
    let setup = Setup::new("Host a\n ProxyJump b\nHost b\n ProxyJump a\n");
    let error = setup.resolve(&Endpoint::new("a")).unwrap_err().to_string();
    assert!(error.contains("form a cycle"), "{error}");
}

#[test]
fn proxy_commands_expand_their_tokens() {
    let setup = Setup::new("Host *\n User ops\n Port 24\n ProxyCommand nc -x%% %h %p %r %n\n");
    let endpoint = Endpoint { address: Some("10.0.0.1".to_owned()), ..Endpoint::new("hv1") };
    let proxy = setup.resolve(&endpoint).unwrap().proxy;
    assert_eq!(proxy, Proxy::Command("nc -x% 10.0.0.1 24 ops hv1".to_owned()));
}

#[test]
fn shell_syntax_in_a_name_stays_out_of_proxy_commands() {
    let setup = Setup::new("ProxyCommand nc %h %p\n");
    let error = setup.resolve(&Endpoint::new("a$(reboot)")).unwrap_err();
    assert!(error.to_string().contains("is not allowed in a ProxyCommand"), "{error}");
    let alias = Setup::new("HostKeyAlias $(reboot)\nProxyCommand nc %k %p\n");
    let error = alias.resolve(&Endpoint::new("a")).unwrap_err();
    assert!(error.to_string().contains("`$(reboot)` is not allowed in a ProxyCommand"), "{error}");
}

#[test]
fn a_user_that_looks_like_an_option_is_refused() {
    let endpoint = Endpoint { user: Some("-oProxyCommand=x".to_owned()), ..Endpoint::new("a") };
    assert!(Setup::new("").resolve(&endpoint).unwrap_err().to_string().contains("is not a user name"));
}

#[test]
fn an_address_that_looks_like_an_option_is_refused() {
    let endpoint = Endpoint::new("-oProxyCommand=x");
    assert!(Setup::new("").resolve(&endpoint).is_err());
}
