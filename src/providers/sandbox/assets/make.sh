#!/bin/sh
# Makes notes.mp3 and notes.wav, the six notes of the sandbox's speech, with ffmpeg.
#
# A note lasts 0.24 s and is silent at both ends: 10 MP3 frames of 144 bytes (24 kHz, mono,
# 48 kbit/s), or 5,760 samples of 16 bits. Frames do not use each other's bits, so notes may follow
# each other in any order.
set -eu
cd "$(dirname "$0")"

notes=
for hertz in 220 247 277 330 370 440; do
	tone="0.4*sin(2*PI*$hertz*t)+0.2*sin(4*PI*$hertz*t)+0.1*sin(6*PI*$hertz*t)"
	notes="$notes -f lavfi -i aevalsrc='($tone)*min(1\,min(t\,0.24-t)/0.03)':s=24000:d=0.24"
done
join='concat=n=6:v=0:a=1'
eval "ffmpeg -v error -y $notes -filter_complex $join -bitexact notes.wav"

# The first note begins 1,105 samples late: 47 more are two frames, which are cut off.
ffmpeg -v error -i notes.wav -af adelay=47S,apad=pad_len=2304 \
	-c:a libmp3lame -b:a 48k -reservoir 0 -write_xing 0 -id3v2_version 0 -f mp3 - |
	tail -c +289 | head -c 8640 >notes.mp3
