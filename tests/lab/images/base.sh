#!/bin/sh
# Runs inside base after its packages: what a host needs that no package brings.
set -eu

useradd --create-home --shell /bin/bash ops
chmod 0440 /etc/sudoers.d/ops
chsh --shell /bin/bash root

# Quiet logins: a locale that is always there, no message of the day, no profile that starts a program.
echo LANG=C.UTF-8 >/etc/default/locale
: >/etc/motd
rm -f /etc/update-motd.d/*

# Useless in a machine that lives for minutes. Masked and not disabled, so that a package that enables it again changes nothing.
systemctl mask --quiet \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    systemd-tmpfiles-clean.timer console-getty.service container-getty@.service getty-static.service \
    systemd-journal-flush.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-random-seed.service systemd-pstore.service sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount
systemctl enable --quiet ssh.service

# Every host gets keys and an identity of its own.
rm -f /etc/ssh/ssh_host_*
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id

echo localhost >/etc/hostname
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >/etc/hosts
: >/etc/resolv.conf
