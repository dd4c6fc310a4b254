//! CAs that are not made by etcdrun.

use std::{
    fs,
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Result, ensure};

use crate::{
    operator::Operator,
    row::Ca,
    site::{CLUSTER, Member, Site},
};

/// Where members have their certificates.
pub const CERTIFICATE: &str = "/etc/etcd/pki/server.crt";
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The script that signs a request on its standard input, for the CA that its argument names.
const SIGN: &str = "exec openssl x509 -req -CA \"$1.crt\" -CAkey \"$1.key\" -days 365 -copy_extensions copyall\n";

/// Makes the CA of this number, and says what the inventory says about it.
pub fn make(operator: &Operator, kind: Ca, number: u32) -> Result<String> {
    let (key, certificate) = (operator.path(&format!("ca-{number}.key")), operator.path(&format!("ca-{number}.crt")));
    if !certificate.exists() {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-days", "3650", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-subj"]);
        let output = openssl.arg(format!("/CN=CA {number}")).arg("-keyout").arg(key).arg("-out").arg(certificate);
        let output = output.output()?;
        ensure!(output.status.success(), "openssl says: {}", String::from_utf8_lossy(&output.stderr));
        operator.write("sign", SIGN)?;
    }
    Ok(entry(operator, kind, number))
}

/// What the inventory says about it.
pub fn entry(operator: &Operator, kind: Ca, number: u32) -> String {
    let (script, files) = (operator.path("sign"), operator.path(&format!("ca-{number}")));
    match kind {
        Ca::Made => String::new(),
        Ca::Brought => format!("certificate: ca-{number}.crt, key: ca-{number}.key"),
        Ca::Command => {
            format!("certificate: ca-{number}.crt, sign_command: [sh, {}, {}]", script.display(), files.display())
        }
    }
}

/// The key of the CA that signs now, if it is there.
fn key(site: &mut Site) -> Result<Option<String>> {
    if site.row.ca != Ca::Made {
        return Ok(fs::read_to_string(site.operator.path(&format!("ca-{}.key", site.ca))).ok());
    }
    let said = site.operator.run(&["secret", "view", &format!(".etcdrun/pki/{CLUSTER}/ca.key.age")])?;
    Ok((said.code == Some(0)).then_some(said.stdout))
}

/// Lets the certificate of a member end then. Nothing happens where that cannot be: one that is being replaced has none.
pub fn end_certificate(site: &mut Site, member: &Member, end: SystemTime) -> Result<bool> {
    let Some(key) = key(site)?.filter(|_| member.guest.is_none()) else { return Ok(false) };
    Ok(member.host.end_certificate(CERTIFICATE, &key, end).is_ok())
}
