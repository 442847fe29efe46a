#!/usr/bin/env bash
# Writes docs/terminal.md: what the commands print in a terminal of 80 columns, recorded by tmux as text.
# Use: scripts/record_terminal.sh [BELLA]. It takes a few minutes, on the embedded digits, in a temporary folder.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bella=$(realpath "${1:-$root/target/release/bella}")
place=$(mktemp -d)
server=bella-recording-$$
trap 'tmux -L "$server" kill-server 2>/dev/null || true; rm -rf "$place"' EXIT
ln -s "$root/configs" "$root/assets" "$place/"
mkdir "$place/bin"
ln -s "$bella" "$place/bin/bella"
cd "$place"
export OMP_WAIT_POLICY=passive # nothing is said of how busy the machine is
page=$root/docs/terminal.md
pane=0
opened=0

tm() { tmux -L "$server" "$@"; }

# Opens a screen of so many lines with a prompt.
screen() {
  opened=$((opened + 1))
  pane=$opened
  tm -f /dev/null new-session -d -s "s$pane" -x 80 -y "$1" "PS1='\$ ' PATH='$place/bin:$PATH' bash --norc --noprofile"
  sleep 1
}
keys() { tm send-keys -t "s$pane" "$@"; }
shown() { tm capture-pane -p -S - -t "s$pane"; }
# Waits until the screen shows a text.
await() {
  for _ in $(seq 600); do
    shown | grep -qE -- "$1" && return
    sleep 0.2
  done
  shown >&2
  echo "error: no \`$1\` on the screen" >&2
  exit 1
}
# Adds the screen to the page, without empty lines at its end.
keep() {
  {
    printf '\n## %s\n\n```text\n' "$1"
    shown | sed -e 's/[[:space:]]*$//' -e "s|$place|.|g" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
    printf '```\n'
  } >>"$page"
}

cat >"$page" <<'TEXT'
<!-- Written by scripts/record_terminal.sh. -->

# In the terminal

What the commands print in a terminal of 80 columns, on the embedded digits. A line of numbers stands below the bar while
training goes on: loss, validation NLL and accuracy, images a second, memory, and the time left of the epoch and of all.
TEXT

train='bella train -c configs/quickstart.toml -s train.epochs=20'
screen 40
keys "$train" Enter
await 'epoch 3/20'
await 'left [0-9]'
keep 'Training'
keys C-c
await 'are saved'
keep 'Ctrl-C'
keys C-l
tm clear-history -t "s$pane"
keys "$train" Enter
await 'results: results'
sleep 1
keep 'The same command again'

screen 50
keys 'bella eval --attack fgsm --epsilon 0.02,0.05' Enter
await 'results: results'
keep 'An attack on the run'

screen 40
keys "$train -s seed=2 --no-eval" Enter
await 'epoch 6/20'
screen 36
keys 'bella watch' Enter
await 'training loss'
keep 'Watching a run'
keys C-c
await 'stopped watching'
pane=$((pane - 1))
await 'gives the posterior'
screen 30
keys 'bella runs' Enter
await 'interrupted|trained'
await '^[$] ?$'
keep 'Runs'

screen 60
keys 'bella init' Enter
await 'or a file\):'
keys 'assets/vit-digits.pt' Enter
await 'KEY=ROOT\):'
keys 'digits' Enter
await 'Method .*\]:'
keys Enter
await 'written and checked'
keep 'A first config'

screen 30
keys 'bella check --deep configs/quickstart.toml' Enter
await 'fine'
keep 'What training would find'

screen 45
keys 'bella report' Enter
await 'Tables of papers'
await '^[$] ?$'
keep 'Report'
