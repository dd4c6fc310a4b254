//! Every process of a lab lives below one cgroup. Ending that cgroup ends the processes, and with them the kernel takes
//! back their namespaces, mounts, interfaces and loop devices. So a lab can be cleaned up however it was left.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use rustix::process::Pid;

use crate::wait;

const TOP: &str = "etcdrun-lab";

/// Where systemd keeps its names on machines that still have the old hierarchies too. nspawn goes by it there, so
/// processes must be at the same place in both.
const OLD_NAMES: &str = "/sys/fs/cgroup/systemd";

pub(crate) struct Cgroup {
    path: PathBuf,
    mirror: Option<PathBuf>,
}

impl Cgroup {
    /// The cgroup of a lab, whether it exists or not.
    pub(crate) fn of_lab(lab: &str) -> Result<Self> {
        let unified = mounted_at()?;
        let old = Path::new(OLD_NAMES);
        let has_old = old.join("cgroup.procs").exists() && unified != Path::new("/sys/fs/cgroup");
        let mirror = has_old.then(|| old.join(TOP).join(lab));
        Ok(Self { path: unified.join(TOP).join(lab), mirror })
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        Self { path: self.path.join(name), mirror: self.mirror.as_ref().map(|mirror| mirror.join(name)) }
    }

    /// The folders that this cgroup is made of.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.path.as_path()).chain(self.mirror.as_deref())
    }

    /// The files by which a process enters.
    pub(crate) fn doors(&self) -> impl Iterator<Item = PathBuf> {
        self.folders().map(|folder| folder.join("cgroup.procs"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn create(&self) -> Result<()> {
        self.folders().try_for_each(|folder| {
            fs::create_dir_all(folder).with_context(|| format!("could not create the cgroup {}", folder.display()))
        })
    }

    /// All processes in it and below it.
    pub(crate) fn processes(&self) -> Result<Vec<Pid>> {
        let mut found = Vec::new();
        collect_processes(&self.path, &mut found)?;
        Ok(found)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.event("populated").is_ok_and(|value| value == "1")
    }

    /// Ends all processes in it, also stopped and frozen ones, and waits until they are gone.
    pub(crate) fn kill(&self) -> Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        self.write("cgroup.kill", "1")?;
        wait::until(&format!("the processes in {} are gone", self.path.display()), Duration::from_secs(20), || {
            Ok((!self.is_alive()).then_some(()))
        })?;
        // Else whatever enters next would be frozen at once.
        self.write("cgroup.freeze", "0")
    }

    /// Stops all processes in it where they stand, or lets them go on.
    pub(crate) fn freeze(&self, frozen: bool) -> Result<()> {
        let value = if frozen { "1" } else { "0" };
        self.write("cgroup.freeze", value)?;
        wait::until("the processes are frozen or thawed", Duration::from_secs(10), || {
            Ok((self.event("frozen")? == value).then_some(()))
        })
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.event("frozen").is_ok_and(|value| value == "1")
    }

    /// Removes the cgroup, in which no process may be left, and the folder of all labs if this was the last one.
    pub(crate) fn remove(&self) -> Result<()> {
        for folder in self.folders() {
            remove_below(folder)?;
            if let Some(parent) = folder.parent().filter(|parent| parent.ends_with(TOP)) {
                // It is busy as long as there are other labs.
                let _ = fs::remove_dir(parent);
            }
        }
        Ok(())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).with_context(|| format!("could not write {value} to {}", path.display()))
    }

    fn event(&self, key: &str) -> Result<String> {
        let text = fs::read_to_string(self.path.join("cgroup.events"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        value.map(str::to_owned).ok_or_else(|| anyhow!("cgroup.events has no `{key}`"))
    }
}

/// Where this machine has mounted the unified hierarchy: /sys/fs/cgroup, or beside the old ones.
fn mounted_at() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let unified = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    });
    unified.ok_or_else(|| {
        anyhow!("cgroup2 is mounted nowhere. The lab keeps its processes together by it: mount -t cgroup2 none /sys/fs/cgroup/unified")
    })
}

fn collect_processes(folder: &Path, found: &mut Vec<Pid>) -> Result<()> {
    let procs = match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    found.extend(procs.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
    for child in children(folder)? {
        collect_processes(&child, found)?;
    }
    Ok(())
}

fn remove_below(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for child in children(folder)? {
        remove_below(&child)?;
    }
    // The kernel needs a moment to forget the last process.
    wait::until(&format!("{} can be removed", folder.display()), Duration::from_secs(10), || {
        match fs::remove_dir(folder) {
            Ok(()) => Ok(Some(())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(())),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
}

fn children(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut children = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}
