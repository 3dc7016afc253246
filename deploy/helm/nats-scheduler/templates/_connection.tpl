{{/* How a pod connects to NATS, of a dict with `root` and `auth`: a user for each component, the servers for all. */}}

{{/* The connection of its settings file, as a JSON object. */}}
{{- define "nats-scheduler.connection" -}}
{{- $nats := .root.Values.nats -}}
{{- $connection := deepCopy (.root.Values.settings.connection | default dict) -}}
{{- $_ := set $connection "servers" $nats.servers -}}
{{- $_ := set $connection "inbox_prefix" .auth.inboxPrefix -}}
{{- if eq .auth.method "creds" -}}
{{- $_ := set $connection "creds" "/etc/nats-scheduler/user/user.creds" -}}
{{- else if eq .auth.method "nkey" -}}
{{- $_ := set $connection "nkey" "/etc/nats-scheduler/user/user.nk" -}}
{{- end -}}
{{- if $nats.tls.ca -}}
{{- $_ := set $connection "tls_ca" "/etc/nats-scheduler/ca/ca.crt" -}}
{{- end -}}
{{- if $nats.tls.first -}}
{{- $_ := set $connection "tls_first" true -}}
{{- end -}}
{{- if .auth.clientCertificate -}}
{{- $_ := set $connection "tls_cert" "/etc/nats-scheduler/client/tls.crt" -}}
{{- $_ := set $connection "tls_key" "/etc/nats-scheduler/client/tls.key" -}}
{{- end -}}
{{- toJson $connection -}}
{{- end -}}

{{/* The variables of a user with a password or a token: these are read at the start of a pod only. */}}
{{- define "nats-scheduler.credentialVariables" -}}
{{- $keys := .auth.keys -}}
{{- if eq .auth.method "userPassword" -}}
- name: NATS_USER
  valueFrom:
    secretKeyRef: {name: {{ .auth.secretName }}, key: {{ default "user" $keys.user }}}
- name: NATS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .auth.secretName }}, key: {{ default "password" $keys.password }}}
{{- else if eq .auth.method "token" -}}
- name: NATS_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .auth.secretName }}, key: {{ default "token" $keys.token }}}
{{- end -}}
{{- end -}}

{{/* The volumes with its secrets: files that are read again at each connection. */}}
{{- define "nats-scheduler.connectionVolumes" -}}
{{- $keys := .auth.keys -}}
{{- if eq .auth.method "creds" }}
- name: user
  secret:
    secretName: {{ .auth.secretName }}
    defaultMode: 0440
    items: [{key: {{ default "user.creds" $keys.creds }}, path: user.creds}]
{{- else if eq .auth.method "nkey" }}
- name: user
  secret:
    secretName: {{ .auth.secretName }}
    defaultMode: 0440
    items: [{key: {{ default "user.nk" $keys.nkey }}, path: user.nk}]
{{- end }}
{{- with .root.Values.nats.tls.ca }}
- name: ca
{{- if .secretName }}
  secret:
    secretName: {{ .secretName }}
{{- else }}
  configMap:
    name: {{ .configMapName }}
{{- end }}
    items: [{key: {{ default "ca.crt" .key }}, path: ca.crt}]
{{- end }}
{{- with .auth.clientCertificate }}
- name: client
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items:
      - {key: {{ default "tls.crt" .certKey }}, path: tls.crt}
      - {key: {{ default "tls.key" .keyKey }}, path: tls.key}
{{- end }}
{{- end -}}

{{- define "nats-scheduler.connectionMounts" -}}
{{- if has .auth.method (list "creds" "nkey") }}
- {name: user, mountPath: /etc/nats-scheduler/user, readOnly: true}
{{- end }}
{{- if .root.Values.nats.tls.ca }}
- {name: ca, mountPath: /etc/nats-scheduler/ca, readOnly: true}
{{- end }}
{{- if .auth.clientCertificate }}
- {name: client, mountPath: /etc/nats-scheduler/client, readOnly: true}
{{- end }}
{{- end -}}
