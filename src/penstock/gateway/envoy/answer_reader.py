"""Lets Envoy note the first piece of a response and the token counts at its end, for the receipts.

The script sees each piece of a response as it passes. It keeps no more than the last bytes, so no response is buffered,
whole or streamed. It notes nothing of the text.
"""

from typing import Final

from penstock.gateway.envoy.clusters import Value

SEEN: Final = "%DYNAMIC_METADATA(penstock.answer:seen)%"
"""What the script has noted: milliseconds since 1970 of the first piece, prompt, cached and output tokens."""
_TAIL_BYTES: Final = 800
"""Bytes at the end of a response in which engines write `usage`."""
_SCRIPT: Final = f"""
local function last(text, names)
  for _, name in ipairs(names) do
    local found = string.match(text, '.*"' .. name .. '"%s*:%s*(%d+)')
    if found then return found end
  end
  return "-"
end

function envoy_on_response(handle)
  local first, tail = nil, ""
  for chunk in handle:bodyChunks() do
    local count = chunk:length()
    if count > 0 then
      if first == nil then first = handle:timestamp() end
      local kept = math.min(count, {_TAIL_BYTES})
      local piece = chunk:getBytes(count - kept, kept)
      tail = kept == {_TAIL_BYTES} and piece or string.sub(tail .. piece, -{_TAIL_BYTES})
    end
  end
  if first == nil then return end
  local seen = string.format("%.0f", first)
  seen = seen .. "/" .. last(tail, {{"prompt_tokens", "input_tokens"}})
  seen = seen .. "/" .. last(tail, {{"cached_tokens", "cache_read_input_tokens"}})
  seen = seen .. "/" .. last(tail, {{"completion_tokens", "output_tokens"}})
  handle:streamInfo():dynamicMetadata():set("penstock.answer", "seen", seen)
end
"""


def answer_filter() -> Value:
    """Return the filter that notes the first piece and the token counts of each response."""
    return {
        "name": "penstock.answer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
            "default_source_code": {"inline_string": _SCRIPT},
        },
    }
