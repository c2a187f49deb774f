-- For haproxy.cfg, in the same folder. HAProxy must have Lua: haproxy -vv shows it.
local own = { "connection", "content-length", "expect", "host", "keep-alive", "te", "transfer-encoding", "upgrade" }

local function drop(fields)
  for _, name in ipairs(own) do fields[name] = nil end
  return fields
end

-- Asks, and answers what is refused. While quotient is away, "open" passes the request on, and "closed" refuses it.
core.register_action("quotient", { "http-req" }, function(txn, away)
  local fields = drop(txn.http:req_get_headers())
  fields["x-original-method"] = { txn.sf:method() }
  fields["x-original-host"] = { txn.sf:req_hdr("host") }
  fields["x-original-uri"] = { txn.sf:pathq() }
  fields["x-real-ip"] = { txn.sf:src() }
  local asked, answer = pcall(function()
    return core.httpclient():get{ url = "http://127.0.0.1:8079/decide", headers = fields }
  end)
  if not asked or not answer.status then
    txn:done(txn:reply{ status = 400 }) -- a head that is too long for a question
  elseif answer.status == 200 then
    txn:set_priv(answer.headers)
  elseif away == "closed" or answer.status < 502 or answer.headers["quotient"] then
    txn:done(txn:reply{ status = answer.status, headers = drop(answer.headers), body = answer.body })
  end
end, 1)

core.register_action("quotient-fields", { "http-res" }, function(txn)
  for name, lines in pairs(txn:get_priv() or {}) do
    if name:find("ratelimit") then
      for _, line in pairs(lines) do txn.http:res_add_header(name, line) end
    end
  end
end)
