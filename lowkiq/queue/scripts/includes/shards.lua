-- How many of KEYS are shards, or series: on Cluster one more is named, which never exists (GUARD in call.py).
local SHARDS = string.sub(KEYS[#KEYS], -6) == ':guard' and #KEYS - 1 or #KEYS
