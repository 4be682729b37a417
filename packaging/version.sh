#!/bin/sh
# Prints the version of a package, made of what git describe says ($1): "~" is before
# the release that follows it and "+" after the one in front, for dpkg as for rpm, and
# "-", which both give a meaning of their own, is gone.
#
#   v1.2.3                     1.2.3
#   v1.3.0-rc.1                1.3.0~rc.1
#   v1.2.3-4-gabcdef0          1.2.3+4.gabcdef0
#   v1.2.3-4-gabcdef0-dirty    1.2.3+4.gabcdef0.dirty
#   abcdef0                    0~57.gabcdef0, with the number of commits
set -eu

v=${1:?"usage: version.sh DESCRIPTION"}
v=${v#v}
after=
case $v in *-dirty) after=.dirty v=${v%-dirty} ;; esac
case $v in
*-[0-9]*-g[0-9a-f]*)
	commit=${v##*-}
	v=${v%-*}
	after=${v##*-}.$commit$after
	v=${v%-*}
	;;
*.*) after=${after#.} ;;
*)
	count=$(git rev-list --count HEAD 2>/dev/null || echo 0)
	v="0~$count.g$v$after"
	after=""
	;;
esac
printf '%s\n' "$(printf %s "$v" | sed 's/-/~/; s/-/./g')${after:++$after}"
