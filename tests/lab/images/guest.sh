#!/bin/sh
# Runs inside the guest's root after its packages.
set -eu

kernel=$(basename /lib/modules/*)
mktirfs -o "/boot/initrd.img-$kernel" "$kernel"

# Where it is looked for, in the order of the boot: extlinux, the kernel, systemd.
install -d /boot/extlinux
cat >/boot/extlinux/extlinux.conf <<CONF
default linux
prompt 0
timeout 0
label linux
    kernel /boot/vmlinuz-$kernel
    initrd /boot/initrd.img-$kernel
    append root=UUID=$ROOT_UUID rootfstype=ext4 ro console=ttyS0,115200 quiet mitigations=off nopti tsc=reliable no_timer_check random.trust_cpu=on nokaslr audit=0 selinux=0 apparmor=0 net.ifnames=0
CONF
echo "UUID=$ROOT_UUID / ext4 defaults,noatime,x-systemd.growfs 0 0" >/etc/fstab

# NoCloud and nothing else: no search for other clouds at boot.
printf 'policy: enabled\n' >/etc/cloud/ds-identify.cfg
find /etc/cloud/cloud.cfg.d -type f ! -name logging.cfg -delete

systemctl enable --quiet systemd-networkd.service serial-getty@ttyS0.service qemu-guest-agent.service
systemctl unmask --quiet systemd-random-seed.service
systemctl mask --quiet getty@tty1.service systemd-udev-settle.service systemd-network-generator.service \
    systemd-networkd-persistent-storage.service cloud-init-hotplugd.socket networking.service \
    systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-hwdb-update.service

# The user of the containers; a guest's users come from cloud-init.
userdel --remove ops
rm -f /etc/sudoers.d/ops /etc/ssh/ssh_host_* /etc/hostname
: >/etc/machine-id
