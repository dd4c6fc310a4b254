# shellcheck shell=sh disable=SC2154
# What a payload's body can call. A shell that stays on a host is sent it once, so this only says what there is; each
# script begins with _start, in a subshell. Small and sparing with forks, since hundreds of hosts may run it at once.
#
# Markers go to descriptor 3, the runner's own stdout, so that they arrive even where a body has
# redirected its output. Each is one line, because bash writes line by line and somebody else may write
# in between. The bootstrap sets _nonce, and _scratch and _halt for names of files: those are as hard to guess, but other users
# see them once the files are there, so they do not tell the nonce.

_start() {
	: "${_nonce:?}"
	_tmp=${TMPDIR:-/tmp}/etcdrun-tmp-$_scratch
	_stop=${TMPDIR:-/tmp}/etcdrun-stop-$_halt
	_failed=''
	# Markers that go out with the next one, since each write costs the whole way to the operator.
	_pending=''
	# The step that runs in this shell itself.
	_brief=''
	# What the files of the next steps are like, if somebody has looked.
	_glances=''
	# Not $$, which is the bootstrap: it lives on behind us.
	{ read -r _runner _about </proc/self/stat; } 2>/dev/null || { _runner=$$ && _about=''; }
	exec 3>&1
	case :${PATH:=/usr/bin:/bin}: in
	*:/usr/sbin:*) ;;
	*) PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin ;;
	esac
	CHECK=''
	DIFF=''
	TMP=''
	trap _leave EXIT
	trap '_brief=; exit 129' HUP
	trap '_brief=; exit 130' INT
	trap '_brief=; exit 141' PIPE
	trap '_brief=; exit 143' TERM
}

_begin() {
	_quiet=''
	printf '%s%s begin %s %s\n' "$_pending" "$_nonce" "$1" "$_runner" >&3
	_pending=''
	printf '%s begin %s\n' "$_nonce" "$1" >&2
}

# The same for a step that has no standard error, until _show_errors has some: markers there are for nobody.
_begin_quiet() {
	_quiet=' quiet'
	_number=$1
	printf '%s%s begin %s %s\n' "$_pending" "$_nonce" "$1" "$_runner" >&3
	_pending=''
}

# The same for the only step of a segment, which runs in this shell: what it reports goes out when it ends.
_begin_brief() {
	_begin_quiet "$1"
	_brief=$1
}

_flush() {
	[ -z "$_pending" ] || printf '%s' "$_pending" >&3
	_pending=''
}

# The file $1 is what a quiet step wrote to standard error.
_show_errors() {
	[ -s "$1" ] || return 0
	[ -z "$_quiet" ] || printf '%s begin %s\n' "$_nonce" "$_number" >&2
	_quiet=''
	cat "$1" >&2
}

# After step $1 with the exit code $2. $3 says what a failure does to the steps behind it.
_end() {
	# What comes next begins another step, or ends it all, and takes this along.
	_pending="$_pending$_nonce end $1 $2$_quiet
"
	[ -n "$_quiet" ] || printf '%s end %s\n' "$_nonce" "$1" >&2
	case $3 in
	stop) [ "$2$_failed" = 0 ] || exit 0 ;;
	stop_later) [ "$2" = 0 ] || _failed=1 ;;
	esac
	# Somebody asked us to start nothing more.
	[ ! -e "$_stop" ] || exit 0
}

_leave() {
	_code=$?
	[ -z "$_brief" ] || _pending="$_pending$_nonce end $_brief $_code quiet
"
	[ ! -d "$_tmp" ] || _remove_private "$_tmp"
	[ ! -e "$_stop" ] || rm -f "$_stop"
	printf '%s%s done\n' "$_pending" "$_nonce" >&3
	# How the step ended has been said. The shell behind us goes on, and would not if we ended like that.
	[ -z "$_brief" ] || exit 0
}

# Markers of a step: _mark TEXT
_mark() {
	if [ -n "$_brief" ]; then _pending=$_pending$1; else printf '%s' "$1" >&3; fi
}

# A marker with a text of any bytes: _text 'WORD ...' TEXT
_text() {
	_mark "$_nonce $1
$2$_nonce endtext
"
}

# One side of a diff, from stdin. One byte more than is shown tells that there is more.
_side() {
	[ -n "$DIFF" ] || return 0
	_text "label" "$2"
	printf '%s %s\n' "$_nonce" "$1" >&3
	head -c 262145 >&3
	printf '%s endtext\n' "$_nonce" >&3
}

changed() {
	_mark "$_nonce changed
"
}

# The step does not end by itself: _ending in_doubt
_ending() {
	_mark "$_nonce ending $1
"
}

mutate() { [ -n "$CHECK" ] || "$@"; }

fail() {
	_text fail "$*"
	exit 1
}

note() { _text msg "$*"; }

unknown() { _text unknown "$*"; }

result() { _text "set $1" "$2"; }

result_int() { _text "int $1" "$2"; }

result_bool() { _text "bool $1" "$2"; }

result_json() { _text "json $1" "$2"; }

show_before() { _side before "$1"; }

show_after() { _side after "$1"; }

have() { command -v "$1" >/dev/null 2>&1; }

# The sha256 of what comes on stdin, where that may be gigabytes: openssl uses what processors have for it, and is several
# times as fast as most sha256sum.
sum_of_much() {
	if openssl dgst -sha256 -r </dev/null >/dev/null 2>&1; then openssl dgst -sha256 -r; else sha256sum; fi
}

# A private folder, the same one for all steps of a segment, removed when the segment ends.
tmp_dir() {
	TMP=$_tmp
	_have_private "$TMP" || fail "cannot create a private temporary directory $TMP"
}
