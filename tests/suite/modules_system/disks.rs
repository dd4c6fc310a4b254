//! mount and filesystem, on tmpfs, image files and loop devices.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use tempfile::TempDir;

use super::{support::run, target::Target};

/// Unmounts what a test that failed left behind.
struct Point(PathBuf);

impl Point {
    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// The line of /proc/mounts.
    fn mounted(&self) -> Option<String> {
        let name = self.text().replace(' ', "\\040");
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        mounts.lines().find(|line| line.split(' ').nth(1) == Some(&name)).map(str::to_owned)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if self.mounted().is_some() {
            let _ = Command::new("umount").arg(&self.0).output();
        }
    }
}

const FSTAB: &str = "# by hand\nUUID=1\t/\text4 defaults 0 1\nproc /proc proc defaults\n";

#[tokio::test]
async fn a_mount_goes_through_all_its_states() {
    for target in Target::all() {
        let folder = tempfile::tempdir().unwrap();
        let point = Point(folder.path().join("mount point"));
        let fstab = folder.path().join("fstab");
        fs::write(&fstab, FSTAB).unwrap();
        let look = || (fs::read_to_string(&fstab).unwrap(), point.mounted(), point.0.exists());
        let args = |state: &str, opts: &str| json!({ "path": point.text(), "src": "tmpfs", "fstype": "tmpfs", "opts": opts, "state": state, "fstab": fstab });
        let line = |opts: &str| format!("tmpfs {} tmpfs {opts} 0 0\n", point.text().replace(' ', "\\040"));

        target.converges("mount", args("present", "size=1m"), look).await;
        assert_eq!(look(), (FSTAB.to_owned() + &line("size=1m"), None, false));
        target.converges("mount", args("mounted", "size=1m"), look).await;
        assert!(point.mounted().unwrap().contains("size=1024k"));
        target.converges("mount", args("mounted", "size=2m"), look).await;
        assert!(point.mounted().unwrap().contains("size=2048k"));
        assert!(target.run("mount", args("remounted", "size=2m")).await.changed);
        target.converges("mount", args("unmounted", "size=2m"), look).await;
        assert_eq!(look(), (FSTAB.to_owned() + &line("size=2m"), None, true));
        target.converges("mount", args("ephemeral", "size=2m"), look).await;
        target.converges("mount", args("absent", "size=2m"), look).await;
        assert_eq!(look(), (FSTAB.to_owned(), None, false));
        let refusal = target.fails("mount", args("remounted", "size=2m")).await;
        assert_eq!(refusal, format!("nothing is mounted on {}", point.text()));
    }
}

#[tokio::test]
async fn a_mount_point_with_files_in_it_stays() {
    let target = Target::ssh();
    let folder = tempfile::tempdir().unwrap();
    let point = Point(folder.path().join("point"));
    fs::create_dir(&point.0).unwrap();
    fs::write(point.0.join("kept"), "").unwrap();
    let fstab = folder.path().join("fstab");
    fs::write(&fstab, format!("tmpfs {} tmpfs defaults 0 0\n", point.text())).unwrap();
    let args = json!({ "path": point.text(), "state": "absent", "fstab": fstab });
    target.converges("mount", args, || fs::read_to_string(&fstab).unwrap()).await;
    assert!(point.0.join("kept").exists());
}

struct Image {
    path: PathBuf,
    _folder: TempDir,
}

impl Image {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = Self { path: folder.path().join("disk.img"), _folder: folder };
        image.resize(8);
        image
    }

    fn resize(&self, megabytes: u64) {
        let file = fs::File::options().create(true).truncate(false).write(true).open(&self.path).unwrap();
        file.set_len(megabytes << 20).unwrap();
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn kind(&self) -> String {
        let probed = Command::new("blkid").args(["-p", "-o", "value", "-s", "TYPE", self.text()]).output().unwrap();
        String::from_utf8(probed.stdout).unwrap().trim().to_owned()
    }

    fn blocks(&self) -> String {
        let text = String::from_utf8(run("dumpe2fs", &["-h", self.text()]).stdout).unwrap();
        text.lines().find(|line| line.starts_with("Block count")).unwrap().to_owned()
    }
}

/// A loop device for an image, detached in the end.
struct Loop(String);

impl Loop {
    fn of(image: &Image) -> Self {
        let shown = run("losetup", &["--find", "--show", image.text()]).stdout;
        Self(String::from_utf8(shown).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

#[tokio::test]
async fn an_empty_device_is_formatted_once_and_can_grow() {
    for target in Target::all() {
        let image = Image::new();
        let args = json!({ "dev": image.text(), "fstype": "ext4", "opts": "-L etcd" });
        target.converges("filesystem", args.clone(), || image.kind()).await;
        let label = run("blkid", &["-p", "-o", "value", "-s", "LABEL", image.text()]).stdout;
        assert_eq!(label, b"etcd\n");
        let mut forced = args.clone();
        forced["force"] = json!(true);
        target.stays("filesystem", forced).await;
        image.resize(16);
        target.stays("filesystem", args.clone()).await;
        let mut growing = args;
        growing["resizefs"] = json!(true);
        target.converges("filesystem", growing, || image.blocks()).await;
    }
}

#[tokio::test]
async fn what_a_device_holds_is_kept_unless_forced() {
    let (target, image) = (Target::ssh(), Image::new());
    run("mkfs.ext4", &["-q", "-F", image.text()]);
    let args = json!({ "dev": image.text(), "fstype": "swap" });
    let refusal = format!("{} contains ext4; `force: true` would destroy it", image.text());
    assert_eq!(target.fails("filesystem", args.clone()).await, refusal);
    let plan = target.check("filesystem", args).await;
    assert_eq!((plan.failed, plan.msg, image.kind()), (true, refusal, "ext4".into()));
    let forced = json!({ "dev": image.text(), "fstype": "swap", "force": true });
    target.converges("filesystem", forced, || image.kind()).await;
}

#[tokio::test]
async fn a_partition_table_is_something_too() {
    let (target, image) = (Target::ssh(), Image::new());
    // A master boot record: one Linux partition from sector 1 on, and the mark at the end.
    let mut sector = [0u8; 512];
    sector[450] = 0x83;
    sector[454] = 1;
    sector[458] = 200;
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&image.path, [&sector[..], &vec![0; 8 << 20]].concat()).unwrap();
    let refusal = target.fails("filesystem", json!({ "dev": image.text(), "fstype": "ext4" })).await;
    assert!(refusal.contains("partition table") && refusal.contains("force"), "{refusal}");
}

#[tokio::test]
async fn a_device_in_use_is_never_touched() {
    let (target, image) = (Target::ssh(), Image::new());
    run("mkfs.ext4", &["-q", "-F", image.text()]);
    let device = Loop::of(&image);
    let forced = |dev: &str| json!({ "dev": dev, "fstype": "swap", "force": true });
    let refusal = target.fails("filesystem", forced(image.text())).await;
    assert!(refusal.ends_with("is in use by a loop device"), "{refusal}");

    let folder = tempfile::tempdir().unwrap();
    let point = Point(folder.path().join("point"));
    let args = json!({
        "path": point.text(), "src": device.0, "fstype": "ext4", "opts": "noatime", "state": "mounted",
        "fstab": folder.path().join("fstab"),
    });
    target.converges("mount", args, || point.mounted()).await;
    let refusal = target.fails("filesystem", forced(&device.0)).await;
    assert_eq!(refusal, format!("{} is mounted on {}", device.0, point.text()));
    drop((point, device));
    assert_eq!(image.kind(), "ext4");
}

#[tokio::test]
async fn a_device_that_is_not_there_yet_is_unknown_in_a_plan() {
    let target = Target::ssh();
    let args = json!({ "dev": "/dev/etcdrun-no-such-disk", "fstype": "ext4" });
    let plan = target.check("filesystem", args.clone()).await;
    assert!(plan.unknown && !plan.failed && !plan.changed, "{plan:?}");
    assert_eq!(target.fails("filesystem", args).await, "/dev/etcdrun-no-such-disk does not exist");
    assert!(!Path::new("/dev/etcdrun-no-such-disk").exists());
}
