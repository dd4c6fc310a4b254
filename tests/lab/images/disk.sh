#!/bin/sh
# Runs inside a copy of the guest's root: makes /mnt/work/guest.raw out of /mnt/root.
set -eu

disk=/mnt/work/guest.raw
size_mib=2048
start_mib=1
# The second copy of the GPT takes the last MiB.
blocks=$(((size_mib - start_mib - 1) * 256))

truncate --size="${size_mib}M" "$disk"
sfdisk --quiet "$disk" <<TABLE
label: gpt
start=${start_mib}MiB, size=$((size_mib - start_mib - 1))MiB, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, attrs=LegacyBIOSBootable
TABLE
dd if=/usr/lib/EXTLINUX/gptmbr.bin of="$disk" bs=440 count=1 conv=notrunc status=none

# extlinux reads no newer features than these.
mke2fs -q -t ext4 -b 4096 -O ^64bit,^metadata_csum -U "$ROOT_UUID" -L root -m 1 \
    -E "offset=$((start_mib * 1024 * 1024)),nodiscard" -d /mnt/root "$disk" "$blocks"
