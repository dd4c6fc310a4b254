//! Releases in a directory of the operator: tarballs with their checksums, or binaries.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Arch, ReleaseError,
    place::{SUMS, sum_in},
};
use crate::{
    digest::{Sha256, hex},
    model::Version,
};

/// A release that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub path: PathBuf,
    pub sha256: String,
    /// Whether the checksum is the published one, and not only that of the file.
    pub published: bool,
}

/// Looks for a release in a directory: its tarball, or a binary.
pub fn look(folder: &Path, version: Version, arch: Arch) -> Result<Local, ReleaseError> {
    let name = arch.tarball(version);
    let own = folder.join(format!("v{version}"));
    let tarball = [&own, folder].map(|folder| folder.join(&name)).into_iter().find(|path| path.is_file());
    if let Some(path) = tarball {
        return checked(path, &name);
    }
    let binaries = [
        folder.join(arch.stem(version)).join("etcd"),
        own.join(arch.stem(version)).join("etcd"),
        own.join("etcd"),
        folder.join(format!("etcd-v{version}")),
        folder.join(format!("etcd-{version}")),
        folder.join("etcd"),
    ];
    let found = binaries.into_iter().find(|path| path.is_file());
    let path = found.ok_or_else(|| ReleaseError::Absent { version, place: folder.display().to_string() })?;
    binary(path, version, arch)
}

/// A tarball has to have the sum that is published.
fn checked(path: PathBuf, name: &str) -> Result<Local, ReleaseError> {
    let sums = path.with_file_name(SUMS);
    let text = match fs::read_to_string(&sums) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = sums.parent().unwrap_or(Path::new("."));
            let (file, folder) = (path.display().to_string(), folder.display().to_string());
            return Err(ReleaseError::Unchecked { file, folder });
        }
        Err(error) => return Err(ReleaseError::disk(&sums, error)),
    };
    let expected = sum_in(&text, name, &sums.display().to_string())?;
    let found = sum_of(&path)?;
    match found == expected {
        true => Ok(Local { path, sha256: found, published: true }),
        false => Err(ReleaseError::Differs { what: path.display().to_string(), found, expected }),
    }
}

/// Of a binary alone no sum is published. It has to be what it is taken for, at least.
fn binary(path: PathBuf, version: Version, arch: Arch) -> Result<Local, ReleaseError> {
    let other =
        |found: String, expected: String| ReleaseError::Other { file: path.display().to_string(), found, expected };
    let machine = machine(&path)?;
    if machine != Some(arch) {
        let found = machine
            .map_or("not a binary for amd64 or arm64".to_owned(), |arch| format!("a binary for {}", arch.name()));
        return Err(other(found, format!("a binary for {}", arch.name())));
    }
    if is_ours(arch) {
        let said = said_version(&path)?;
        if said != Some(version) {
            let found = said.map_or("not etcd".to_owned(), |said| format!("etcd {said}"));
            return Err(other(found, format!("etcd {version}")));
        }
    }
    Ok(Local { sha256: sum_of(&path)?, path, published: false })
}

/// Whether this machine runs such binaries.
fn is_ours(arch: Arch) -> bool {
    std::env::consts::OS == "linux"
        && match arch {
            Arch::Amd64 => std::env::consts::ARCH == "x86_64",
            Arch::Arm64 => std::env::consts::ARCH == "aarch64",
        }
}

/// What an ELF binary of 64 bits runs on, if it is one that etcdrun knows.
fn machine(path: &Path) -> Result<Option<Arch>, ReleaseError> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(20).read_to_end(&mut head));
    read.map_err(|error| ReleaseError::disk(path, error))?;
    Ok(match (head.get(..5), head.get(18..20)) {
        (Some(b"\x7fELF\x02"), Some([62, 0])) => Some(Arch::Amd64),
        (Some(b"\x7fELF\x02"), Some([183, 0])) => Some(Arch::Arm64),
        _ => None,
    })
}

/// What `etcd --version` says. It prints and ends; no other argument of ours makes it do anything else.
fn said_version(path: &Path) -> Result<Option<Version>, ReleaseError> {
    let whole = std::path::absolute(path).map_err(|error| ReleaseError::disk(path, error))?;
    let output = Command::new(whole).arg("--version").env_clear().stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| ReleaseError::disk(path, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().find_map(|line| line.strip_prefix("etcd Version: ")?.trim().parse().ok()))
}

/// Copies a file that has this checksum; one that is there already stays if it is the same.
pub fn copy(from: &Path, to: &Path, sha256: &str) -> Result<(), ReleaseError> {
    let check = |path: &Path| match sum_of(path)? {
        found if found == sha256 => Ok(()),
        found => Err(ReleaseError::Differs { what: path.display().to_string(), found, expected: sha256.to_owned() }),
    };
    if to.exists() {
        return check(to);
    }
    let part = to.with_extension(format!("part-{:08x}", rand::random::<u32>()));
    let copied = fs::copy(from, &part).and_then(|_| File::open(&part)?.sync_all());
    let copied = copied.map_err(|error| ReleaseError::disk(&part, error)).and_then(|()| check(&part));
    let copied = copied.and_then(|()| fs::rename(&part, to).map_err(|error| ReleaseError::disk(to, error)));
    if copied.is_err() {
        // It may never have been made.
        let _ = fs::remove_file(&part);
    }
    copied
}

/// The checksum of a file.
pub fn sum_of(path: &Path) -> Result<String, ReleaseError> {
    let mut sum = Sha256::default();
    let mut read = || -> io::Result<()> {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                count => sum.update(&buffer[..count]),
            }
        }
    };
    read().map_err(|error| ReleaseError::disk(path, error))?;
    Ok(hex(sum.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256;

    const VERSION: Version = Version { major: 3, minor: 5, patch: 34 };
    const NAME: &str = "etcd-v3.5.34-linux-amd64.tar.gz";

    fn elf(machine: u8) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02".to_vec();
        bytes.resize(64, 0);
        bytes[18] = machine;
        bytes
    }

    fn told(folder: &Path, arch: Arch) -> String {
        look(folder, VERSION, arch).unwrap_err().to_string()
    }

    #[test]
    fn a_tarball_counts_only_with_its_published_sum() {
        for at in ["", "v3.5.34"] {
            let here = tempfile::tempdir().unwrap();
            let folder = here.path().join(at);
            fs::create_dir_all(&folder).unwrap();
            assert!(told(here.path(), Arch::Amd64).starts_with("there is no etcd 3.5.34 at "));
            fs::write(folder.join(NAME), "tar").unwrap();
            assert!(told(here.path(), Arch::Amd64).contains("there is no SHA256SUMS in "));
            fs::write(folder.join(SUMS), format!("{}  {NAME}\n", "0".repeat(64))).unwrap();
            let differs = told(here.path(), Arch::Amd64);
            assert!(differs.contains(&format!("has the sha256 {}, expected 000", hex(sha256("tar")))), "{differs}");
            fs::write(folder.join(SUMS), format!("{}  {NAME}\n", hex(sha256("tar")))).unwrap();
            let found = look(here.path(), VERSION, Arch::Amd64).unwrap();
            assert_eq!((found.path, found.published), (folder.join(NAME), true));
            assert!(told(here.path(), Arch::Arm64).starts_with("there is no etcd"));
        }
    }

    #[test]
    fn a_binary_has_to_be_one_for_the_members() {
        let here = tempfile::tempdir().unwrap();
        let write = |bytes: &[u8]| fs::write(here.path().join("etcd-3.5.34"), bytes).unwrap();
        write(b"#!/bin/sh\n");
        assert!(
            told(here.path(), Arch::Amd64).ends_with("is not a binary for amd64 or arm64, expected a binary for amd64")
        );
        write(&elf(183));
        assert!(told(here.path(), Arch::Amd64).ends_with("is a binary for arm64, expected a binary for amd64"));
        if !is_ours(Arch::Arm64) {
            let found = look(here.path(), VERSION, Arch::Arm64).unwrap();
            assert_eq!((found.sha256, found.published), (hex(sha256(elf(183))), false));
        }
    }
}
