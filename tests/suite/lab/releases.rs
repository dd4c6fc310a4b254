//! Releases that `etcdrun releases add` has listed are what members get.

use std::fs;

use etcdrun_lab::etcd;

use super::{
    etcd::{PLAIN, Site},
    upgrade::{all_run, wants},
    web::Web,
};
use crate::support::run;

/// From a mirror with the layout of the official place: by its URL, and then as a file that was downloaded.
#[test]
fn a_release_that_was_added_is_what_an_upgrade_installs() {
    let site = Site::formed(1, "3.6.9", PLAIN);
    let (server, folder) = (etcd("3.6").unwrap(), &site.place.folder);
    let (version, name) = (server.version.as_str(), format!("etcd-v{}-linux-amd64", server.version));
    let mirror = folder.path(&format!("web/v{version}"));
    fs::create_dir_all(mirror.join(&name)).unwrap();
    fs::copy(&server.path, mirror.join(&name).join("etcd")).unwrap();
    let tarball = mirror.join(format!("{name}.tar.gz"));
    run("tar", &["-C", mirror.to_str().unwrap(), "-czf", tarball.to_str().unwrap(), &name]);
    let sums = run("sh", &["-c", &format!("cd {} && sha256sum *.tar.gz", mirror.display())]).stdout;
    fs::write(mirror.join("SHA256SUMS"), sums).unwrap();
    let web = Web::start(folder.path("web"));
    let from = web.url("");
    let add = |more: &[&str]| {
        folder.run(&[&["releases", "add", version, "-i", "inventory.yaml", "--from", &from], more].concat())
    };

    let before = folder.read("inventory.yaml");
    add(&[]).ends(0);
    wants(&site, "3.6.9", version, "");
    let accept = ["-e", "rollout_allow_outage=true"];
    folder.run(&[&["playbook", "upgrade.yaml", "-i", "inventory.yaml"], &accept[..]].concat()).ends(0);
    all_run(&site, version);

    folder.write("inventory.yaml", &before);
    add(&["--download", "bin"]).ends(0);
    wants(&site, "3.6.9", version, "");
    folder.run(&["releases", "check", "-i", "inventory.yaml"]).ends(0);
    site.changes_nothing();
}
