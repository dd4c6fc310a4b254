//! The images that hosts and guests start from, built once by the recipes in `images/` and cached by their content.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::command::command;

const RECIPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/images");
const CACHE: &str = "/var/cache/etcdrun-lab";

/// Builds what the cache lacks and returns the folder of images.
pub(crate) fn provide(say: &(dyn Fn(&str) + Sync)) -> Result<PathBuf> {
    say(&format!("images, in {CACHE} (the first time this takes minutes)"));
    let cache = cache()?;
    let mut build = command(&format!("{RECIPES}/build"), [&cache]);
    let is_over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| tell(&cache, say, &is_over));
        let output = build.stderr(Stdio::inherit()).output();
        is_over.store(true, Ordering::Relaxed);
        output
    });
    let output = output.with_context(|| format!("could not start {RECIPES}/build"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let folder = said.lines().last().map(PathBuf::from);
    match folder {
        Some(folder) if output.status.success() => Ok(folder),
        _ => bail!("the images could not be built: {RECIPES}/build ended with {}", output.status),
    }
}

/// Says every few seconds what a build is at: the last line of each of its logs.
fn tell(cache: &Path, say: &(dyn Fn(&str) + Sync), is_over: &AtomicBool) {
    let begun = Instant::now();
    let mut told = begun;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(100));
        if told.elapsed() < Duration::from_secs(8) {
            continue;
        }
        told = Instant::now();
        let partial = fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
        let partial = partial
            .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".partial")));
        let logs = partial
            .flat_map(|path| ["hypervisor", "guest", "services"].map(|name| (name, path.join(format!("{name}.log")))));
        let at = logs.filter_map(|(name, log)| {
            let text = fs::read(log).ok()?;
            let text = String::from_utf8_lossy(&text);
            Some(format!("{name}: {}", text.lines().rfind(|line| !line.trim().is_empty())?.trim()))
        });
        let at: Vec<_> = at.collect();
        let at = if at.is_empty() { "base system".to_owned() } else { at.join("; ") };
        say(&format!("images, at work for {} s ({at})", begun.elapsed().as_secs()));
    }
}

/// Whether KVM really runs a guest here; asked once for each boot of the machine.
pub(crate) fn has_kvm(images: &Path) -> Result<bool> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(false);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let answer = cache()?.join(format!("kvm-{}", boot.trim()));
    if let Ok(known) = fs::read_to_string(&answer) {
        return Ok(known == "yes");
    }
    let works = command(&format!("{RECIPES}/kvm-probe"), [images])
        .output()
        .context("could not start kvm-probe")?
        .status
        .success();
    fs::write(answer, if works { "yes" } else { "no" })?;
    Ok(works)
}

pub(crate) fn cache() -> Result<PathBuf> {
    let cache = std::env::var_os("ETCDRUN_LAB_CACHE").map_or_else(|| PathBuf::from(CACHE), PathBuf::from);
    fs::create_dir_all(&cache).with_context(|| format!("could not create {}", cache.display()))?;
    Ok(cache)
}
