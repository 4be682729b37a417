#!/bin/sh
# Before the files go. dpkg says "remove", "upgrade" and others; rpm the number of
# versions that stay, 0 for none. An upgrade stops nothing: the program that runs
# does not need its file.
set -e

case $1 in
remove | deconfigure | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	# What becomes of the table is for on_stop of the configuration to say.
	systemctl stop sluiced.service || true
fi
if [ "$1" = 0 ]; then # dpkg keeps what the operator enabled until the purge
	systemctl --quiet --no-reload disable sluiced.service 2>/dev/null || true
fi
