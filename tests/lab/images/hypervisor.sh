#!/bin/sh
# Runs inside the hypervisor layer after its packages.
set -eu

systemctl enable --quiet macvtap-nodes.service libvirtd.service libvirtd.socket libvirtd-ro.socket virtlogd.socket virtlockd.socket
# libvirt-guests would suspend guests when a host stops; a lab's hosts are killed.
systemctl mask --quiet libvirt-guests.service libvirtd-tls.socket libvirtd-tcp.socket systemd-machined.service \
    systemd-modules-load.service logrotate.timer nftables.service

ln -sf /etc/libvirt/qemu/networks/default.xml /etc/libvirt/qemu/networks/autostart/default.xml
install -d /etc/libvirt/storage/autostart
cat >/etc/libvirt/storage/default.xml <<'XML'
<pool type='dir'>
  <name>default</name>
  <target>
    <path>/var/lib/libvirt/images</path>
  </target>
</pool>
XML
ln -sf /etc/libvirt/storage/default.xml /etc/libvirt/storage/autostart/default.xml
