#!/bin/bash
# Stands in the sandbox for a program that destroys, changes user or fetches: writes down how it was called.
# A record is the number of arguments, the folder, the name and the arguments, each ended by NUL.
printf '%s\0' "$#" "$PWD" "${0##*/}" "$@" >>/log/calls
case ${0##*/} in
curl | wget | fetch | aria2c | lynx | http) ;;
chmod)
    # One file made executable does happen, so that a fetched one can be started.
    [ $# -eq 2 ] && [ -f "$2" ] && real-chmod u+x "$2"
    exit 0
    ;;
*) exit 0 ;;
esac

# A download: text that, should a shell come to run it, calls one more stand-in.
fetched='#!/bin/bash
ran-fetched-text'
name=${0##*/}
letter=o # of the option that takes a file name
[ "$name" = wget ] && letter=O
file= folder= last= url=
for argument; do
    case $last in
    --output | --output-document | -$letter | -[a-zA-Z]*$letter) file=$argument ;;
    -P) folder=$argument/ ;;
    esac
    case $argument in
    --output=* | --output-document=*) file=${argument#*=} ;;
    -$letter?* | -[a-zA-Z]*$letter-) file=${argument##*"$letter"} ;;
    -O | -[a-zA-Z]*O | --remote-name) [ "$name" = curl ] && file=remote ;;
    *://*) url=$argument ;;
    esac
    last=$argument
done
[ "$name" = wget ] && [ -z "$file" ] && file=remote
[ "$file" = remote ] && file=$folder${url##*/}
if [ -z "$file" ] || [ "$file" = - ]; then
    printf '%s\n' "$fetched"
else
    printf '%s\n' "$fetched" >"$file"
fi
