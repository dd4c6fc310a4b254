#!/bin/sh
# Runs inside the guest's root after its packages.
set -eu

kernel=$(basename /lib/modules/*)
mktirfs -o "/boot/initrd.img-$kernel" "$kernel"

# No nokaslr: by TCG, a kernel that a reboot unpacks over the code of the last one takes 45 s to do so.
# Where it is looked for, in the order of the boot: extlinux, the kernel, systemd.
install -d /boot/extlinux
cat >/boot/extlinux/extlinux.conf <<CONF
default linux
prompt 0
timeout 0
label linux
    kernel /boot/vmlinuz-$kernel
    initrd /boot/initrd.img-$kernel
    append root=UUID=$ROOT_UUID rootfstype=ext4 ro init=/usr/local/sbin/ignition-init console=ttyS0,115200 quiet net.ifnames=0 mitigations=off tsc=reliable no_timer_check audit=0 lsm=yama cryptomgr.notests rcupdate.rcu_expedited=1
CONF
echo "UUID=$ROOT_UUID / ext4 defaults,noatime,x-systemd.growfs 0 0" >/etc/fstab

# NoCloud and nothing else: no search for other clouds, and so no generator, which would only enable this.
find /etc/cloud/cloud.cfg.d -type f ! -name logging.cfg -delete
systemctl add-wants --quiet multi-user.target cloud-init.target

# Generators for what a virtual machine does not have; each is a program that systemd waits for.
install -d /etc/systemd/system-generators
for generator in cloud-init-generator systemd-cryptsetup-generator systemd-debug-generator systemd-getty-generator \
    systemd-gpt-auto-generator systemd-hibernate-resume-generator systemd-integritysetup-generator \
    systemd-rc-local-generator systemd-run-generator systemd-system-update-generator systemd-sysv-generator \
    systemd-veritysetup-generator; do
    ln -s /dev/null "/etc/systemd/system-generators/$generator"
done

# udev rules for hardware that it does not have.
for rules in 55-dm 60-autosuspend 60-cdrom_id 60-drm 60-evdev 60-fido-id 60-infiniband 60-persistent-alsa \
    60-persistent-input 60-persistent-storage-dm 60-persistent-storage-tape 60-persistent-v4l 60-sensor 64-btrfs \
    66-azure-ephemeral 70-camera 70-joystick 70-memory 70-mouse 70-touchpad 70-uaccess 71-seat 73-seat-late 75-probe_mtd \
    78-sound-card 85-hwclock 95-dm-notify 96-e2scrub; do
    ln -s /dev/null "/etc/udev/rules.d/$rules.rules"
done

systemctl enable --quiet systemd-networkd.service serial-getty@ttyS0.service qemu-guest-agent.service
systemctl mask --quiet getty@tty1.service systemd-udev-settle.service systemd-network-generator.service \
    cloud-init-hotplugd.socket networking.service systemd-pcrphase.service systemd-pcrphase-sysinit.service \
    systemd-hwdb-update.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-sysusers.service \
    systemd-modules-load.service kmod-static-nodes.service modprobe@drm.service modprobe@fuse.service \
    modprobe@dm_mod.service modprobe@loop.service modprobe@configfs.service modprobe@efi_pstore.service \
    sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount \
    systemd-ask-password-console.path systemd-ask-password-wall.path

# The user of the containers; a guest's users come from cloud-init.
userdel --remove ops
rm -f /etc/sudoers.d/ops /etc/ssh/ssh_host_* /etc/hostname
: >/etc/machine-id
