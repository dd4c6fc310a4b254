# shellcheck shell=sh disable=SC2154
# The newest snapshot of the log, and all files of the log, by their names and in order.

newest=''
for file in "$arg_data_dir"/member/snap/*.snap; do
    if [ -f "$file" ]; then newest=${file##*/}; fi
done
result snapshot "$newest"

files=''
for file in "$arg_data_dir"/member/wal/*.wal; do
    if [ -f "$file" ]; then files="$files ${file##*/}"; fi
done
result files "$files"
