# shellcheck shell=sh
# For how many seconds the machine has been up.
read -r up _ </proc/uptime
result_int uptime "${up%.*}"
