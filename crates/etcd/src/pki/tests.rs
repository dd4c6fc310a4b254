use std::{os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

use super::*;
use crate::{
    inventory::sections::{AuthSection, KeyAlgorithm, NextCa, TlsSection},
    source::{OpenError, Opener},
};

/// An operator with one identity.
struct Me(age::x25519::Identity);

impl Opener for Me {
    fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let armored = age::armor::ArmoredReader::new(sealed);
        let mut reader = age::Decryptor::new(armored).unwrap().decrypt(std::iter::once(&self.0 as _)).unwrap();
        let mut plain = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut plain).unwrap();
        Ok(Zeroizing::new(plain))
    }

    fn own_recipient(&self) -> Result<Option<String>, OpenError> {
        Ok(Some(self.0.to_public().to_string()))
    }
}

struct Place {
    folder: tempfile::TempDir,
    store: Store,
    me: Arc<dyn Opener>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), "prod");
        Self { folder, store, me: Arc::new(Me(age::x25519::Identity::generate())) }
    }

    fn keeping(&self) -> Keeping<'_> {
        Keeping { store: &self.store, opener: Some(&self.me) }
    }

    fn authority(&self, tls: &TlsSection) -> Authority {
        Authority::make("prod", tls, &self.keeping()).unwrap()
    }
}

fn tls(text: &str) -> TlsSection {
    serde_json::from_str(text).unwrap()
}

fn member(tls: &TlsSection) -> Request {
    Request::new("etcd-1", Usage::Member, tls).with_names(["10.0.0.1", "etcd-1", "::1", "0:0:0:0:0:0:0:1", ""])
}

async fn issued(authority: &Authority, request: &Request, store: &Store) -> Certificate {
    let key = LeafKey::generate(request.algorithm).unwrap();
    Certificate::parse(&authority.issue(request, key, store).await.unwrap().certificate).unwrap()
}

#[tokio::test]
async fn an_authority_is_kept_with_its_key_encrypted_and_opened_again() {
    let place = Place::new();
    let nothing = TlsSection::default();
    assert!(Authority::open(&nothing, &place.keeping()).unwrap().is_none());
    let made = place.authority(&nothing);
    let kept = std::fs::read_to_string(place.store.key_path()).unwrap();
    assert!(kept.starts_with("-----BEGIN AGE ENCRYPTED FILE-----") && !kept.contains("PRIVATE KEY"));
    let opened = Authority::open(&nothing, &place.keeping()).unwrap().unwrap();
    assert_eq!(opened.certificate, made.certificate);
    assert!(opened.certificate.is_authority && opened.certificate.is_signed_by(&opened.certificate));
    assert!(issued(&opened, &member(&nothing), &place.store).await.is_signed_by(&made.certificate));

    std::fs::remove_file(place.store.key_path()).unwrap();
    let error = Authority::open(&nothing, &place.keeping()).err().unwrap();
    assert!(error.message.contains("is missing") && error.help.is_some(), "{error}");
}

#[tokio::test]
async fn a_certificate_says_what_was_asked_for() {
    for (text, algorithm) in
        [(r#"{"organization": "Lab"}"#, KeyAlgorithm::Ecdsa), (r#"{"algorithm": "rsa"}"#, KeyAlgorithm::Rsa)]
    {
        let (place, tls) = (Place::new(), tls(text));
        let authority = place.authority(&tls);
        let request = member(&tls);
        let certificate = issued(&authority, &request, &place.store).await;
        assert_eq!(certificate.common_name, "etcd-1");
        assert_eq!(certificate.organization, tls.organization);
        assert_eq!(certificate.names.iter().map(String::as_str).collect::<Vec<_>>(), ["10.0.0.1", "::1", "etcd-1"]);
        assert!(certificate.is_for_clients && certificate.is_for_servers && !certificate.is_authority);
        assert_eq!(request.algorithm, algorithm);
        assert_eq!(request.wish(Some(&certificate), &authority.certificate, Timestamp::now()), Wish::Nothing);
    }
}

#[tokio::test]
async fn a_certificate_is_replaced_for_a_reason_and_keeps_its_key() {
    let (place, plain) = (Place::new(), TlsSection::default());
    let authority = place.authority(&plain);
    let certificate = issued(&authority, &member(&plain), &place.store).await;
    let now = Timestamp::now();
    let wish = |request: &Request, at| request.wish(Some(&certificate), &authority.certificate, at);
    let renews = |request: &Request, why: &str| match wish(request, now) {
        Wish::Certificate(said) => assert!(said.contains(why), "{said}"),
        other => panic!("{why}: {other:?}"),
    };
    renews(&member(&plain).with_names(["lb.example.org"]), "it is for");
    renews(&member(&tls(r#"{"organization": "Other"}"#)), "organization");
    renews(&Request { common_name: "other".into(), ..member(&plain) }, "another name");
    assert!(matches!(wish(&member(&tls(r#"{"algorithm": "rsa"}"#)), now), Wish::KeyAndCertificate(_)));

    let year = Duration::from_secs(365 * 86_400);
    assert_eq!(wish(&member(&plain), now + year / 2), Wish::Nothing);
    assert!(matches!(wish(&member(&plain), now + year / 4 * 3), Wish::Certificate(_)));
    assert!(matches!(wish(&member(&plain), now - year / 2), Wish::Certificate(_)), "not valid yet");
    let other = Place::new();
    let stranger = other.authority(&plain);
    assert!(matches!(member(&plain).wish(Some(&certificate), &stranger.certificate, now), Wish::Certificate(_)));

    let again = authority.issue(&member(&plain), LeafKey::of(&certificate).unwrap(), &place.store).await.unwrap();
    assert!(again.key.is_none());
    let again = Certificate::parse(&again.certificate).unwrap();
    assert_eq!(again.public_key, certificate.public_key);
    assert_ne!(again.serial, certificate.serial);
}

#[tokio::test]
async fn a_command_can_sign_instead() {
    let place = Place::new();
    let authority = place.authority(&TlsSection::default());
    // What the command has, we do not: it opens the key by itself.
    let key = place.me.open(&std::fs::read(place.store.key_path()).unwrap()).unwrap();
    let path = |name: &str| place.folder.path().join(name).display().to_string();
    std::fs::write(path("ca.key"), &*key).unwrap();
    std::fs::write(path("ca.crt"), &authority.pem).unwrap();
    let script = format!(
        "cat > {0}; openssl x509 -req -in {0} -CA {1} -CAkey {2} -days 9 -copy_extensions copyall 2>/dev/null",
        path("request"),
        path("ca.crt"),
        path("ca.key")
    );
    let section = |command: &str| {
        let mut tls = TlsSection::default();
        tls.ca.certificate = Some(path("ca.crt"));
        tls.ca.sign_command = vec!["sh".into(), "-c".into(), command.to_owned()];
        tls
    };
    let signs = Authority::open(&section(&script), &place.keeping()).unwrap().unwrap();
    let request = member(&TlsSection::default());
    assert!(authority.can_renew("etcd-1", &place.store).unwrap() && !signs.can_renew("etcd-1", &place.store).unwrap());
    // The request for a key that is elsewhere was kept when the key was made, whoever signed it.
    let own = issued(&authority, &request, &place.store).await;
    let renewed = signs.issue(&request, LeafKey::of(&own).unwrap(), &place.store).await.unwrap();
    assert_eq!(Certificate::parse(&renewed.certificate).unwrap().public_key, own.public_key);
    let first = issued(&signs, &request, &place.store).await;
    assert!(first.is_signed_by(&authority.certificate) && first.names == request.names, "{first:?}");
    let again = signs.issue(&request, LeafKey::of(&first).unwrap(), &place.store).await.unwrap();
    assert_eq!(Certificate::parse(&again.certificate).unwrap().public_key, first.public_key);
    // Two keys with one common name, each on its own host.
    let on = |host: &str| Request::new("server", Usage::Client, &TlsSection::default()).recorded_as(host);
    let one = issued(&signs, &on("server@1"), &place.store).await;
    let two = issued(&signs, &on("server@2"), &place.store).await;
    let again = signs.issue(&on("server@1"), LeafKey::of(&one).unwrap(), &place.store).await.unwrap();
    assert!(
        Certificate::parse(&again.certificate).unwrap().public_key == one.public_key
            && one.common_name == two.common_name
    );
    let mut more = one.clone();
    more.names = ["server".to_owned()].into();
    assert_eq!(on("server@1").wish(Some(&more), &authority.certificate, Timestamp::now()), Wish::Nothing);
    // It gives nine days where a year is asked for: they are not renewed all the time.
    let request = request.renewed_within(Some(Duration::from_secs(24 * 60 * 60)));
    let on_day = |day: i64| first.not_before + SignedDuration::from_hours(24 * day);
    assert_eq!(request.wish(Some(&first), &authority.certificate, on_day(5)), Wish::Nothing);
    assert!(matches!(request.wish(Some(&first), &authority.certificate, on_day(7)), Wish::Certificate(_)));

    // What comes back is not always what was asked for, and is worth nothing then.
    let sign = |options: &str| script.replace("-days 9 -copy_extensions copyall", options);
    let extensions = |text: &str| {
        std::fs::write(path("extensions"), text).unwrap();
        sign(&format!("-days 9 -extfile {}", path("extensions")))
    };
    let names = "subjectAltName=IP:10.0.0.1,DNS:etcd-1,IP:::1\n";
    for (command, why) in [
        (sign("-days 9"), "it is for"),
        (sign("-days 0 -copy_extensions copyall"), "it expires at"),
        (extensions(&format!("{names}extendedKeyUsage=clientAuth\n")), "not for this use"),
    ] {
        let wrong = Authority::open(&section(&command), &place.keeping()).unwrap().unwrap();
        let key = LeafKey::generate(request.algorithm).unwrap();
        let error = wrong.issue(&request, key, &place.store).await.err().unwrap();
        assert!(error.message.contains(why) && error.help.is_some(), "{why}: {error}");
    }
    let more = extensions(&format!("{}extendedKeyUsage=clientAuth,serverAuth\n", names.replace('\n', ",DNS:also\n")));
    let more = Authority::open(&section(&more), &place.keeping()).unwrap().unwrap();
    assert!(issued(&more, &request, &place.store).await.names.contains("also"), "more than that does no harm");

    // One that counts serial numbers in a file must not be run twice at a time.
    let alone = format!("mkdir {0} || exit 9; {script}; sleep 0.2; rmdir {0}", path("busy"));
    let alone = Authority::open(&section(&alone), &place.keeping()).unwrap().unwrap();
    let (server, client) = (on("server@3"), on("server@4"));
    tokio::join!(issued(&alone, &server, &place.store), issued(&alone, &client, &place.store));

    for (command, why) in [("exit 3", "exit status: 3"), ("echo no", "no certificate")] {
        let fails = Authority::open(&section(command), &place.keeping()).unwrap().unwrap();
        let key = LeafKey::generate(request.algorithm).unwrap();
        let error = fails.issue(&request, key, &place.store).await.err().unwrap();
        assert!(error.message.contains(why), "{error}");
    }
}

#[tokio::test]
async fn an_authority_that_is_brought_along_must_fit_its_key() {
    let (one, other) = (Place::new(), Place::new());
    let plain = TlsSection::default();
    let (first, _) = (one.authority(&plain), other.authority(&plain));
    let certificate = one.folder.path().join("own.crt");
    std::fs::write(&certificate, &first.pem).unwrap();
    let brought = |key: std::path::PathBuf| {
        let mut tls = TlsSection::default();
        tls.ca.certificate = Some(certificate.display().to_string());
        tls.ca.key = Some(key.display().to_string());
        tls
    };
    assert!(Authority::open(&brought(one.store.key_path()), &one.keeping()).unwrap().is_some(), "its key is encrypted");
    let key = other.me.open(&std::fs::read(other.store.key_path()).unwrap()).unwrap();
    let wrong = one.folder.path().join("wrong.key");
    write_key(&wrong, &key);
    let error = Authority::open(&brought(wrong), &one.keeping()).err().unwrap();
    assert!(error.message.contains("does not match the CA certificate"), "{error}");
}

/// As a person should keep it.
fn write_key(path: &std::path::Path, key: &[u8]) {
    std::fs::write(path, key).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_key_of_an_authority_that_others_can_read_is_refused() {
    let place = Place::new();
    let authority = place.authority(&TlsSection::default());
    let (certificate, key) = (place.folder.path().join("own.crt"), place.folder.path().join("own.key"));
    std::fs::write(&certificate, &authority.pem).unwrap();
    write_key(&key, &place.me.open(&std::fs::read(place.store.key_path()).unwrap()).unwrap());
    let mut tls = TlsSection::default();
    (tls.ca.certificate, tls.ca.key) = (Some(certificate.display().to_string()), Some(key.display().to_string()));
    assert!(Authority::open(&tls, &place.keeping()).unwrap().is_some());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = Authority::open(&tls, &place.keeping()).err().unwrap();
    assert!(refused.message.contains("not encrypted, and is readable by others (mode 0644)"), "{refused}");
    // Encrypted it may be read by anybody.
    std::fs::copy(place.store.key_path(), &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Authority::open(&tls, &place.keeping()).unwrap().is_some());
}

#[tokio::test]
async fn users_get_a_certificate_once_and_again_when_it_is_wanted() {
    let (place, plain) = (Place::new(), TlsSection::default());
    let authority = place.authority(&plain);
    let first = authority.client("writer", &plain, &place.keeping(), Renewal::IfNeeded).await.unwrap();
    let second = authority.client("writer", &plain, &place.keeping(), Renewal::IfNeeded).await.unwrap();
    assert!(first.is_new && !second.is_new && first.certificate == second.certificate);
    assert!(authority.client("writer", &plain, &place.keeping(), Renewal::Always).await.unwrap().is_new);
    assert_eq!(place.store.users().unwrap(), ["writer"]);
    for bad in ["", "../x", "a/b", "-x"] {
        assert!(authority.client(bad, &plain, &place.keeping(), Renewal::IfNeeded).await.is_err(), "{bad}");
    }
}

/// The authority that signs now, and how many are trusted.
fn signing(place: &Place, tls: &TlsSection) -> (Certificate, usize) {
    let authority = Authority::open(tls, &place.keeping()).unwrap().unwrap();
    let trusted = Certificate::parse_all(&authority.trusted).unwrap();
    let kept = place.store.authority_certificate().unwrap().unwrap();
    assert_eq!(kept, authority.trusted, "ca.crt is what others should trust");
    (authority.certificate, trusted.len())
}

fn step(place: &Place, phase: RotationPhase) {
    let there = place.store.rotation().unwrap().unwrap();
    place.store.keep_rotation(&Rotation { phase, complete: false, ..there }).unwrap();
}

#[tokio::test]
async fn an_authority_is_replaced_in_phases() {
    let (place, plain) = (Place::new(), TlsSection::default());
    let old = place.authority(&plain).certificate;
    let rotation = Rotation::begin("prod", &plain, &place.keeping(), RotationPhase::Trust).unwrap();
    let new = Certificate::parse(&rotation.new).unwrap();
    assert_ne!(old.public_key, new.public_key);
    assert_eq!(signing(&place, &plain), (old.clone(), 2));
    let first = place.store.trusted().unwrap();
    step(&place, RotationPhase::Issue);
    assert_eq!(signing(&place, &plain), (new.clone(), 2));
    assert_eq!(place.store.trusted().unwrap(), first, "nobody restarts for it");
    // Users get a certificate of the new one, whenever theirs would have ended.
    let opened = Authority::open(&plain, &place.keeping()).unwrap().unwrap();
    let before = rotation.old_authority(&plain, &place.keeping()).unwrap();
    before.client("writer", &plain, &place.keeping(), Renewal::IfNeeded).await.unwrap();
    assert!(matches!(opened.client_wish("writer", &plain, &place.keeping(), None).unwrap(), Wish::Certificate(_)));
    assert!(opened.client("writer", &plain, &place.keeping(), Renewal::IfNeeded).await.unwrap().is_new);
    step(&place, RotationPhase::Finish);
    assert_eq!(signing(&place, &plain), (new.clone(), 1));
    let there = place.store.rotation().unwrap().unwrap();
    assert!(there.end(&plain, &place.store).unwrap());
    assert!(place.store.rotation().unwrap().is_none());
    assert_eq!(signing(&place, &plain), (new, 1));
}

#[tokio::test]
async fn a_rotation_can_be_given_up_and_one_of_an_ended_authority_is_short() {
    let (place, plain) = (Place::new(), TlsSection::default());
    let old = place.authority(&plain).certificate;
    let rotation = Rotation::begin("prod", &plain, &place.keeping(), RotationPhase::Trust).unwrap();
    rotation.abandon(&place.store).unwrap();
    assert_eq!(signing(&place, &plain), (old, 1));
    assert!(place.store.rotation().unwrap().is_none() && !place.store.next_key_path().exists());

    let rotation = Rotation::begin("prod", &plain, &place.keeping(), RotationPhase::Finish).unwrap();
    let new = Certificate::parse(&rotation.new).unwrap();
    assert_eq!(signing(&place, &plain), (new.clone(), 1));
    assert!(rotation.end(&plain, &place.store).unwrap());
    assert_eq!(signing(&place, &plain), (new, 1));
}

#[tokio::test]
async fn an_authority_that_is_brought_along_is_replaced_by_the_next_one() {
    let (one, other) = (Place::new(), Place::new());
    let files = |place: &Place, name: &str| {
        let authority = place.authority(&TlsSection::default());
        let path = |end: &str| one.folder.path().join(format!("{name}.{end}")).display().to_string();
        std::fs::write(path("crt"), &authority.pem).unwrap();
        write_key(path("key").as_ref(), &place.me.open(&std::fs::read(place.store.key_path()).unwrap()).unwrap());
        (path("crt"), path("key"), authority.certificate)
    };
    let (certificate, key, old) = files(&one, "old");
    let (next_certificate, next_key, new) = files(&other, "new");
    let mut tls = TlsSection::default();
    (tls.ca.certificate, tls.ca.key) = (Some(certificate), Some(key));
    let error = Rotation::begin("prod", &tls, &one.keeping(), RotationPhase::Trust).unwrap_err();
    assert!(error.message.contains("the next one is not set"), "{error}");
    tls.ca.next =
        Some(NextCa { certificate: next_certificate.clone(), key: Some(next_key.clone()), sign_command: vec![] });
    Rotation::begin("prod", &tls, &one.keeping(), RotationPhase::Trust).unwrap();
    assert_eq!(signing(&one, &tls), (old, 2));
    let mut early = tls.clone();
    (early.ca.certificate, early.ca.key, early.ca.next) = (Some(next_certificate), Some(next_key), None);
    let error = Authority::open(&early, &one.keeping()).err().unwrap();
    assert!(error.message.contains("not the CA that is being replaced"), "{error}");
    step(&one, RotationPhase::Finish);
    let there = one.store.rotation().unwrap().unwrap();
    assert!(!there.end(&tls, &one.store).unwrap(), "somebody has to put it into the inventory");
    assert_eq!(signing(&one, &tls), (new.clone(), 1));
    assert_eq!(signing(&one, &early), (new, 1));
    assert!(one.store.rotation().unwrap().unwrap().is_over(&early));
}

#[tokio::test]
async fn a_key_that_a_crash_has_left_beside_another_certificate_is_not_used() {
    let (place, plain) = (Place::new(), TlsSection::default());
    let authority = place.authority(&plain);
    let first = authority.client("writer", &plain, &place.keeping(), Renewal::IfNeeded).await.unwrap();
    let other = authority.client("other", &plain, &place.keeping(), Renewal::IfNeeded).await.unwrap();
    place.keeping().keep_client(&plain.ca, "writer", &first.certificate, &other.key).unwrap();
    let again = authority.client("writer", &plain, &place.keeping(), Renewal::IfNeeded).await.unwrap();
    assert!(again.is_new && *again.key != *other.key);
}

/// The text of a file as it is on the disk.
fn on_disk(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn keys_and_passwords_of_users_are_encrypted_on_the_disk() {
    let (place, plain) = (Place::new(), TlsSection::default());
    let (keeping, authority) = (place.keeping(), place.authority(&plain));
    let root = authority.client("root", &plain, &keeping, Renewal::IfNeeded).await.unwrap();
    keeping.keep_password(&plain.ca, "root", "hunter2-hunter2").unwrap();
    let (certificate, key) = place.store.client_paths("root");
    assert!(on_disk(&key).starts_with("-----BEGIN AGE ENCRYPTED FILE-----"), "{}", on_disk(&key));
    assert!(on_disk(&place.store.password_path("root")).starts_with("-----BEGIN AGE ENCRYPTED FILE-----"));
    assert_eq!(keeping.client("root").unwrap().unwrap(), (on_disk(&certificate), root.key));
    assert_eq!(keeping.password("root").unwrap().unwrap().as_str(), "hunter2-hunter2");

    // Whoever has no key gets nothing, and is told which file it is.
    let nobody = Keeping { store: &place.store, opener: None };
    let refused = nobody.client("root").unwrap_err();
    assert!(refused.message.contains("root.key is encrypted"), "{refused}");
}

#[tokio::test]
async fn plain_files_of_an_earlier_version_are_read_and_encrypted_by_the_next_run() {
    let (place, plain) = (Place::new(), TlsSection::default());
    let (keeping, authority) = (place.keeping(), place.authority(&plain));
    let root = authority.client("root", &plain, &keeping, Renewal::IfNeeded).await.unwrap();
    let (_, key) = place.store.client_paths("root");
    let password = place.store.password_path("root");
    std::fs::write(&key, root.key.as_str()).unwrap();
    std::fs::write(&password, "hunter2-hunter2\n").unwrap();

    // Looking changes nothing; it is read as it is, also where there is nobody to encrypt it to.
    let nobody = Keeping { store: &place.store, opener: None };
    assert_eq!(nobody.client("root").unwrap().unwrap().1, root.key);
    assert!(!authority.client("root", &plain, &keeping, Renewal::ForNow).await.unwrap().is_new);
    assert!(!authority.client("root", &plain, &nobody, Renewal::IfNeeded).await.unwrap().is_new);
    assert_eq!((on_disk(&key), on_disk(&password).as_str()), (root.key.to_string(), "hunter2-hunter2\n"));

    let again = authority.client("root", &plain, &keeping, Renewal::IfNeeded).await.unwrap();
    assert!(!again.is_new && again.key == root.key);
    for path in [&key, &password] {
        assert!(on_disk(path).starts_with("-----BEGIN AGE ENCRYPTED FILE-----"), "{}", path.display());
    }
    assert_eq!(keeping.password("root").unwrap().unwrap().as_str(), "hunter2-hunter2");
    let folder = std::fs::read_dir(key.parent().unwrap()).unwrap();
    let left: Vec<_> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.contains("new-")), "{left:?}");
}

#[tokio::test]
async fn a_look_uses_what_the_last_run_left_and_keeps_nothing() {
    let (place, tls) = (Place::new(), TlsSection::default());
    let by_certificate = AuthSection::default();
    let error = place.keeping().root("prod", &tls, &by_certificate).await.err().unwrap();
    assert!(error.message.contains("`prod` has no CA here"), "{}", error.message);
    let authority = place.authority(&tls);
    let root = place.keeping().root("prod", &tls, &by_certificate).await.unwrap();
    assert_eq!(root.authority, authority.trusted);
    assert!(root.identity.is_some() && place.keeping().client("root").unwrap().is_none(), "it is for now");
    let kept = authority.client("root", &tls, &place.keeping(), Renewal::IfNeeded).await.unwrap();
    // The certificate that is kept needs no key of the CA.
    std::fs::remove_file(place.store.key_path()).unwrap();
    let root = place.keeping().root("prod", &tls, &by_certificate).await.unwrap();
    assert_eq!(root.identity.unwrap().0, kept.certificate);
}

#[tokio::test]
async fn a_password_that_was_played_wins_over_the_one_of_the_inventory() {
    let (place, tls) = (Place::new(), TlsSection::default());
    let auth: AuthSection =
        serde_json::from_str(r#"{"method": "password", "root_password": "of the inventory"}"#).unwrap();
    place.authority(&tls);
    let login = async || {
        let root = place.keeping().root("prod", &tls, &auth).await.unwrap();
        assert!(root.identity.is_none());
        root.login.map(|(user, password)| format!("{user}: {}", password.as_str()))
    };
    assert_eq!(login().await.as_deref(), Some("root: of the inventory"));
    place.keeping().keep_password(&tls.ca, "root", "of the last run").unwrap();
    assert_eq!(login().await.as_deref(), Some("root: of the last run"));
}
