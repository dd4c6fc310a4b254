//! Hosts that were prepared once and are kept switched off, so that a test can begin with a copy of them. A copy has the names, the
//! addresses and the keys of what was kept, so there is never more than one of them: who holds the addresses has it alone. A copy
//! changes nothing of what was kept: its root is a layer above, and its disk a file of its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    Lab,
    command::{command, run},
    files::{lock, remove_folder, replace_file},
    host::{HOST_KEY_FILES, Host, LAYER},
    lab::{Borrowed, each, start_all},
};

/// More hosts than this are not kept: a host takes about 40 MiB of this machine's disk.
const MOST: usize = 90;
/// The operator's folder, in what is kept, and the file that says where it was.
const FOLDER: &str = "folder";
const PLACE: &str = "place";

/// Copies of hosts that were kept, which run, and the folder of the operator that was kept with them.
pub struct Copies {
    pub hosts: Vec<Borrowed>,
    /// What was in the folder; others use it too, so it is only read.
    pub folder: PathBuf,
    /// Where the folder was, so that a copy of it at the same place has the paths that are written in it.
    pub place: PathBuf,
}

impl Lab {
    /// Copies of hosts that were kept under this name, unless there are none or all of them are in use.
    pub fn borrow_kept(&self, name: &str) -> Result<Option<Copies>> {
        let Some((row, hosts)) = self.reserve_kept(name)? else { return Ok(None) };
        start_all(&hosts.iter().map(|host| &**host).collect::<Vec<_>>())?;
        let place = PathBuf::from(fs::read_to_string(row.join(PLACE))?);
        Ok(Some(Copies { hosts, folder: row.join(FOLDER), place }))
    }

    fn reserve_kept(&self, name: &str) -> Result<Option<(PathBuf, Vec<Borrowed>)>> {
        let _lock = lock(self.folder())?;
        let taken: Vec<u8> = self.hosts()?.iter().map(|host| host.record.number).collect();
        for row in folders(&self.kept_folder().join(name))? {
            let hosts = self.kept_in(&row)?;
            if hosts.iter().all(|host| !taken.contains(&host.record.number)) {
                hosts.iter().try_for_each(|host| host.copy_of(&row.join(&host.name)))?;
                return Ok(Some((row, hosts.into_iter().map(Borrowed::new).collect())));
            }
        }
        Ok(None)
    }

    /// Switches hosts off, keeps them and a folder under a name, and switches them on again, as the first copy.
    pub fn keep(&self, name: &str, hosts: &[Borrowed], folder: &Path) -> Result<()> {
        let Some(first) = hosts.first() else { return Ok(()) };
        let all = self.kept_folder();
        if self.kept_numbers()?.len() + hosts.len() > MOST {
            return Ok(());
        }
        let hosts: Vec<&Host> = hosts.iter().map(|host| &**host).collect();
        each(&hosts, Host::switch_off)?;
        let (row, new) = (all.join(name).join(&first.name), all.join(format!(".{}", first.name)));
        ensure!(!row.exists(), "{} is kept already, in {}", first.name, row.display());
        // A test that was killed may have left it.
        remove_folder(&new)?;
        fs::create_dir_all(&new)?;
        fs::write(new.join(PLACE), folder.as_os_str().as_encoded_bytes())?;
        run(command("cp", ["--archive", "--"]).arg(folder).arg(new.join(FOLDER)))?;
        hosts.iter().try_for_each(|host| host.move_to(&new.join(&host.name)))?;
        fs::create_dir_all(all.join(name))?;
        // In one step, so that nothing is taken for kept that is not whole.
        fs::rename(new, &row)?;
        hosts.iter().try_for_each(|host| host.copy_of(&row.join(&host.name)))?;
        start_all(&hosts)
    }

    /// The numbers of all hosts that are kept. New ones take others if they can, so that they keep nobody from a copy.
    pub(crate) fn kept_numbers(&self) -> Result<Vec<u8>> {
        let mut numbers = Vec::new();
        for name in folders(&self.kept_folder())? {
            for row in folders(&name)? {
                numbers.extend(self.kept_in(&row)?.iter().map(|host| host.record.number));
            }
        }
        Ok(numbers)
    }

    fn kept_in(&self, row: &Path) -> Result<Vec<Host>> {
        let mut hosts = Vec::new();
        for folder in folders(row)? {
            let Ok(record) = fs::read(folder.join("host.json")) else { continue };
            let name = folder.file_name().context("a host that is kept has no name")?.to_string_lossy().into_owned();
            hosts.push(Host { lab: self.clone(), name, record: serde_json::from_slice(&record)? });
        }
        hosts.sort_by_key(|host: &Host| host.record.number);
        Ok(hosts)
    }

    fn kept_folder(&self) -> PathBuf {
        self.folder().join("kept")
    }
}

impl Host {
    /// What makes this host goes there, which is switched off.
    fn move_to(&self, kept: &Path) -> Result<()> {
        let folder = self.folder();
        fs::create_dir_all(kept)?;
        for name in ["upper", "disk.img"] {
            fs::rename(folder.join(name), kept.join(name))?;
        }
        remove_folder(&folder.join("work"))?;
        Ok(fs::write(kept.join("host.json"), serde_json::to_vec_pretty(&self.record)?)?)
    }

    /// Makes this host of what is kept there.
    fn copy_of(&self, kept: &Path) -> Result<()> {
        let (folder, layer) = (self.folder(), kept.join("upper"));
        let keys = folder.join("upper/etc/ssh");
        fs::create_dir_all(&keys)?;
        fs::create_dir_all(folder.join("work"))?;
        // They are the same in the layer; here is where a host's key is looked for.
        for name in HOST_KEY_FILES {
            fs::copy(layer.join("etc/ssh").join(name), keys.join(name))?;
        }
        let disk = folder.join("disk.img");
        run(command("cp", ["--sparse=always", "--reflink=auto", "--"]).arg(kept.join("disk.img")).arg(disk))?;
        fs::write(folder.join(LAYER), layer.as_os_str().as_encoded_bytes())?;
        // Last, so that a half-made host is none.
        replace_file(&folder.join("host.json"), &serde_json::to_vec_pretty(&self.record)?)
    }
}

/// The folders in a folder, in the order of their names, without those that are not whole; none if it does not exist.
fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}
