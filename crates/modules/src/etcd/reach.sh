# shellcheck shell=sh disable=SC2154
# Which hosts do not answer at a port. Each of "$@" is a name and an address. A refused connection is an answer: the way is
# there, and nothing listens yet. Where nothing here can connect, nothing is said.

# 0 if there is an answer, 1 if there is none.
answers() {
    if have bash; then
        # shellcheck disable=SC2016 # It is the other shell that expands them.
        said=$(LC_ALL=C timeout "$limit" bash -c ': <"/dev/tcp/$0/$1"' "$1" "$2" 2>&1) && return 0
        case $said in *refused*) return 0 ;; *) return 1 ;; esac
    fi
    have curl || return 0
    case $1 in *:*) url="https://[$1]:$2" ;; *) url="https://$1:$2" ;; esac
    # 7 is a refused connection, or no route to the host, which is told by the text alone.
    said=$(LC_ALL=C curl -skS --connect-timeout "$limit" --max-time "$limit" -o /dev/null "$url" 2>&1) && return 0
    case $said in *'timed out'* | *'No route'* | *unreachable*) return 1 ;; *) return 0 ;; esac
}

limit=5
silent=$(
    for other in "$@"; do
        (answers "${other#* }" "$arg_port" || printf '%s\n' "${other%% *}") &
    done
    wait
)
list=''
for name in $silent; do list="$list${list:+, }$name"; done
result silent "$list"
