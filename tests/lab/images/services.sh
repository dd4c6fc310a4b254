#!/bin/sh
# Runs inside the layer of services after its packages: all is installed and nothing starts, as before a role was played.
set -eu

pg_dropcluster 15 main
systemctl disable --quiet \
    chrony.service haproxy.service keepalived.service nftables.service prometheus.service prometheus-alertmanager.service \
    prometheus-node-exporter.service postgresql.service
systemctl mask --quiet logrotate.timer

# A container may not set the clock. So chronyd measures, and leaves it.
mkdir -p /etc/systemd/system/chrony.service.d
printf '[Unit]\nConditionCapability=\n' >/etc/systemd/system/chrony.service.d/lab.conf
echo 'DAEMON_OPTS="-F 1 -x"' >/etc/default/chrony
rm -f /etc/chrony/chrony.conf /etc/chrony/sources.d/*
