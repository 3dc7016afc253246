#!/bin/sh
# Store three schedules with the nats CLI (0.4.0 or later), receive what they fire, replace one and end another.
# The server is the first argument, otherwise NATS_URL.
set -eu
NATS_URL="${1:-${NATS_URL:-nats://127.0.0.1:4222}}"
export NATS_URL
cd "$(dirname "$0")"

quietly() {
  output=$("$@" 2>&1) || {
    echo "$output" >&2
    return 1
  }
}

# Both may be repeated: a stream or consumer with the same configuration is left as it is.
quietly nats stream add --config orders.json
quietly nats consumer add ORDERS due --filter orders.due --pull --ack explicit --deliver all --defaults

soon=$(date -u -d '2 seconds' +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -v+2S +%Y-%m-%dT%H:%M:%SZ)
quietly nats pub --schedule-at "$soon" --schedule-dest orders.due orders.schedules.reminder 'remind of order 17'
quietly nats pub --schedule-every 1s --schedule-dest orders.due orders.schedules.pulse 'pulse'
# What has no flag is a header, such as the time zone.
quietly nats pub --schedule-cron '*/2 * * * * *' -H 'Nats-Schedule-Time-Zone: Europe/Berlin' \
  --schedule-dest orders.due orders.schedules.report 'open orders'

# Receive and acknowledge fires, one at a time, until each schedule has fired.
fired=
while [ "$(printf '%s' "$fired" | sort -u | wc -l)" -lt 3 ]; do
  fire=$(nats consumer next ORDERS due --timeout 30s)
  schedule=$(printf '%s\n' "$fire" | sed -n 's/^ *Nats-Scheduler: //p')
  next=$(printf '%s\n' "$fire" | sed -n 's/^ *Nats-Schedule-Next: //p')
  body=$(printf '%s\n' "$fire" | sed -e '1,/^Data:/d' -e '/^Acknowledged/d' -e '/^ *$/d')
  follows='and fires again'
  [ "$next" = purge ] && follows='for the last time'
  fired="$fired$schedule fired: $body, $follows
"
done
printf '%s' "$fired" | sort -u

# The last message on the subject of a schedule counts, so another one replaces it.
quietly nats pub --schedule-cron '0 30 9 * * mon-fri' -H 'Nats-Schedule-Time-Zone: Europe/Berlin' \
  --schedule-dest orders.due orders.schedules.report 'open orders'
echo 'orders.schedules.report is replaced'

# To end a schedule, purge its subject.
quietly nats stream purge ORDERS --force --subject orders.schedules.pulse
echo 'orders.schedules.pulse is ended'
