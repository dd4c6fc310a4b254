# shellcheck shell=sh disable=SC2034,SC2154
# Does KVM really run guests here? In front of the payloads that want to know.
#
# That /dev/kvm exists says little: there are machines where it opens and then emulates each instruction, thousands of times
# slower than QEMU's own TCG. So a guest is booted that counts to fifty million and then has QEMU exit with 33, which takes a
# second where KVM is what its name says. The answer holds until the next boot, and is kept as long.

probe_folder=/run/etcdrun
probe_seconds=5

# Sets $virt to kvm or qemu, and $virt_reason if it is not kvm. In check mode to nothing, unless it was found out before.
probe_kvm() {
    virt='' virt_reason=''
    if [ -r "$probe_folder/virt" ]; then read -r virt virt_reason <"$probe_folder/virt"; fi
    case $virt in kvm | qemu) return ;; esac
    mutate find_out
}

find_out() {
    really_probe
    # Without the folder the next one has to find out again.
    if mkdir -p "$probe_folder" 2>/dev/null; then
        printf '%s %s\n' "$virt" "$virt_reason" >"$probe_folder/virt" 2>/dev/null || :
    fi
}

really_probe() {
    virt=qemu
    if [ ! -c /dev/kvm ]; then virt_reason='there is no /dev/kvm'; return; fi
    emulator=$(vir domcapabilities --virttype kvm 2>/dev/null | sed -n 's:^ *<path>\(.*\)</path>$:\1:p' | head -n 1)
    if [ -z "$emulator" ]; then virt_reason='libvirt offers no KVM'; return; fi
    # The probe is in the machine language of one architecture; on the others libvirt is believed.
    if [ "$(uname -m)" != x86_64 ]; then virt=kvm; return; fi
    tmp_dir
    {
        printf '\146\271\200\360\372\002\146\111\165\374\260\020\346\364\364\353\375'
        head -c 493 /dev/zero
        printf '\125\252'
    } >"$TMP/kvm-probe"
    timeout -k 1 "$probe_seconds" "$emulator" -accel kvm -cpu host -m 16 -nodefaults -no-user-config -display none -no-reboot \
        -device isa-debug-exit,iobase=0xf4,iosize=1 -drive "file=$TMP/kvm-probe,format=raw,if=floppy,readonly=on" >/dev/null 2>&1
    case $? in
    33) virt=kvm ;;
    124 | 137) virt_reason="/dev/kvm exists, but a guest with a second of work was not done after $probe_seconds s" ;;
    # A QEMU that lacks what the probe is made of says nothing about KVM.
    *) virt=kvm ;;
    esac
}
