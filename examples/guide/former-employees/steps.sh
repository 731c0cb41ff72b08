#!/bin/sh
# An employee moves from the current table into the archive and back
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Current","entity":{"PartitionKey":"Sales","RowKey":"000003","FirstName":"Ken","LastName":"Kwok"}}'
evenkeel run --until-idle --no-http -q

# One message moves the entity: copied, then deleted at the version that was copied.
evenkeel submit '{"op":"archive","archive":"former_employees","pk":"Sales","rk":"000003"}'
evenkeel run --until-idle --no-http -q
evenkeel find former_employees Sales 000003

# The message comes once more: nothing happens.
evenkeel submit '{"op":"archive","archive":"former_employees","pk":"Sales","rk":"000003"}'
evenkeel run --until-idle --no-http -q

# And back.
evenkeel submit '{"op":"restore","archive":"former_employees","pk":"Sales","rk":"000003"}'
evenkeel run --until-idle --no-http -q
evenkeel find former_employees Sales 000003
