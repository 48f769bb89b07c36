;;; capd.el --- Switch on the MCP tools that a message needs  -*- lexical-binding: t; -*-

;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: tools, convenience
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; capd in Emacs: commands that ask the daemon over its socket, and a prompt
;; transform for gptel that sends the user's message to the daemon.
;;
;;   (require 'capd)
;;   (add-hook 'gptel-prompt-transform-functions #'capd-gptel-transform)
;;   (add-to-list 'mcp-hub-servers (capd-mcp-hub-entry))
;;
;; A turn holds a prompt for `capd-budget' seconds at most, and never fails:
;; without a daemon the prompt goes on as if capd were not there.

;;; Code:

(require 'json)
(require 'seq)
(require 'subr-x)

(defgroup capd nil
  "Switch on the MCP tools that a message needs."
  :group 'tools)

(defcustom capd-socket nil
  "The daemon's socket; nil finds it as the other clients do."
  :type '(choice (const :tag "The user's own" nil) file))

(defcustom capd-budget 0.3
  "Seconds for which a prompt is held back until the daemon has answered.
If the answer takes longer, the tools are there one request later."
  :type 'number)

(defcustom capd-timeout 30
  "Seconds that a command waits for its answer."
  :type 'number)

(defcustom capd-command nil
  "The command that starts capd's shim, a list.
When nil, the launcher that `capd install' writes, else `capd mcp'."
  :type '(choice (const nil) (repeat string)))

(defcustom capd-session nil
  "The key of the session that this Emacs has with capd; nil makes one."
  :type '(choice (const nil) string))

(define-error 'capd-error "Error of capd")

(defvar capd--process nil "The connection of role control, or nil.")
(defvar capd--callbacks nil "The callbacks of the waiting requests, by id.")
(defvar capd--last-id 0 "The id of the last request.")
(defconst capd--saying 0.03
  "Seconds of the budget that are kept for putting the answer into the prompt.")
(defconst capd--least 0.05
  "With fewer seconds left, the daemon is told that its answer is not read.")
(defconst capd--longest-line (* 32 1024 1024)
  "A longer line of the daemon closes the connection.")

(defun capd--variable (name)
  "Return the environment variable NAME, or nil if it is empty."
  (let ((value (getenv name)))
    (unless (or (null value) (string-empty-p value)) value)))

(defun capd--xdg (name)
  "Return the environment variable NAME of a folder, or nil if it is not absolute."
  (let ((value (capd--variable name)))
    (and value (string-prefix-p "/" value) value)))

(defun capd-socket-path ()
  "Return the path of the daemon's socket."
  (let ((run (format "/run/user/%d" (user-uid))))
    (expand-file-name
     (cond (capd-socket capd-socket)
           ((capd--variable "CAPD_SOCKET"))
           ((capd--variable "CAPD_HOME")
            (concat (file-name-as-directory (capd--variable "CAPD_HOME")) "run/capd.sock"))
           ((capd--xdg "XDG_RUNTIME_DIR")
            (concat (file-name-as-directory (capd--xdg "XDG_RUNTIME_DIR")) "capd/capd.sock"))
           ((file-directory-p run) (concat run "/capd/capd.sock"))
           (t "~/.local/state/capd/run/capd.sock")))))

(defun capd--down (why)
  "Return the error that says WHY there is no daemon."
  (list :code 0
        :message (format "no daemon at %s (%s); start it with: capd daemon start"
                         (capd-socket-path) why)))

(defun capd--connect ()
  "Return the connection, opening it if need be; signal `capd-error'."
  (unless (process-live-p capd--process)
    (let* ((path (capd-socket-path))
           (owner (file-attribute-user-id (or (file-attributes path 'integer) '(nil nil nil)))))
      (unless (equal owner (user-uid))
        ;; Another user's program must not get the user's text.
        (signal 'capd-error (list (plist-get (capd--down "no socket of this user's is there")
                                             :message))))
      (setq capd--callbacks (make-hash-table))
      (setq capd--process
            (condition-case err
                (make-network-process
                 :name "capd" :family 'local :service path :noquery t
                 :coding 'utf-8-unix :buffer (generate-new-buffer " *capd*" t)
                 :filter #'capd--filter :sentinel #'capd--sentinel)
              (file-error
               (signal 'capd-error
                       (list (plist-get (capd--down (error-message-string err)) :message))))))
      ;; The daemon recognises a link frame by its first bytes.
      (process-send-string
       capd--process
       (format "{\"capd\":\"hello\",\"protocol\":1,\"role\":\"control\",\"client\":{\"name\":\"emacs\",\"pid\":%d}}\n"
               (emacs-pid)))))
  capd--process)

(defun capd--sentinel (process _event)
  "If PROCESS has ended, fail the requests that wait for it."
  (unless (process-live-p process)
    (let ((callbacks capd--callbacks))
      (when (buffer-live-p (process-buffer process))
        (kill-buffer (process-buffer process)))
      (when (eq process capd--process)
        (setq capd--process nil
              capd--callbacks nil))
      (when callbacks
        (maphash (lambda (_ callback)
                   (funcall callback (capd--down "it closed the connection") nil))
                 callbacks)))))

(defun capd--filter (process text)
  "Take TEXT from PROCESS, a line at a time."
  (when (buffer-live-p (process-buffer process))
    (let (lines)
      (with-current-buffer (process-buffer process)
        (goto-char (point-max))
        (let ((from (point)))
          (insert text)
          (goto-char from)
          (while (search-forward "\n" nil t)
            (push (buffer-substring (point-min) (1- (point))) lines)
            (delete-region (point-min) (point))))
        (when (> (buffer-size) capd--longest-line)
          (delete-process process)))
      (mapc #'capd--take (nreverse lines)))))

(defun capd--take (line)
  "Take one LINE of the daemon."
  (let ((message (ignore-errors
                   (json-parse-string line :object-type 'plist :array-type 'list
                                      :null-object nil :false-object nil))))
    (if (equal (plist-get message :capd) "refused")
        (delete-process capd--process)
      (let* ((id (plist-get message :id))
             (callback (and id capd--callbacks (gethash id capd--callbacks))))
        (when callback
          (remhash id capd--callbacks)
          (funcall callback (plist-get message :error) (plist-get message :result)))))))

(defun capd-ask-async (method params callback)
  "Send a request for METHOD with the plist PARAMS to the daemon.
CALLBACK takes an error and a result.  Both are plists, and one of them is nil."
  (condition-case err
      (let ((process (capd--connect))
            (id (setq capd--last-id (1+ capd--last-id))))
        (puthash id callback capd--callbacks)
        (process-send-string
         process
         (concat (json-serialize
                  (list :jsonrpc "2.0" :id id :method method
                        :params (or params (make-hash-table))))
                 "\n")))
    (capd-error (funcall callback (list :code 0 :message (cadr err)) nil))
    (error (funcall callback (capd--down (error-message-string err)) nil))))

(defun capd-ask (method &optional params timeout)
  "Send a request for METHOD with the plist PARAMS, and return the result.
Signal `capd-error' if it is refused, or not answered in TIMEOUT seconds."
  (let* ((answer nil)
         (timeout (or timeout capd-timeout))
         (until (time-add nil timeout)))
    (capd-ask-async method params (lambda (err result) (setq answer (list err result))))
    (while (and (not answer) (time-less-p nil until))
      (accept-process-output nil 0.02))
    (cond ((not answer)
           (signal 'capd-error (list (format "no answer in %s s; `capd status' may say why" timeout))))
          ((car answer) (signal 'capd-error (list (plist-get (car answer) :message))))
          (t (cadr answer)))))

(defun capd-session-key ()
  "Return the key of the session that `capd-mcp-hub-entry' opens."
  (or capd-session (format "emacs-%d" (emacs-pid))))

(defun capd--own-session (sessions)
  "Return the key of this Emacs's session; nil unless SESSIONS has exactly one."
  (let* ((keys (lambda (found) (mapcar (lambda (each) (plist-get each :key)) found)))
         (own (seq-filter (lambda (each) (equal (plist-get each :key) (capd-session-key))) sessions))
         (ours (seq-filter (lambda (each) (equal (plist-get each :pid) (emacs-pid))) sessions))
         (found (funcall keys (or own ours))))
    (and (= (length found) 1) (car found))))

(defun capd-ask-session-async (method params callback)
  "Send a request for METHOD with PARAMS in this Emacs's session.
CALLBACK is as for `capd-ask-async'.  PARAMS may be a function, which is called
once the session is found."
  (capd-ask-async
   "sessions" nil
   (lambda (err result)
     (let ((key (and result (capd--own-session (plist-get result :sessions)))))
       (cond (err (funcall callback err nil))
             (key (capd-ask-async
                   method
                   (append (if (functionp params) (funcall params) params) (list :session key))
                   callback))
             (t (funcall callback
                         (list :code 4004
                               :message "no one session of capd is this Emacs's; set `capd-session'")
                         nil)))))))

(defun capd-ask-session (method &optional params timeout)
  "Send a request for METHOD with PARAMS in this Emacs's session.
The result and TIMEOUT are as for `capd-ask'."
  (let ((key (capd--own-session (plist-get (capd-ask "sessions" nil timeout) :sessions))))
    (unless key
      (signal 'capd-error '("no one session of capd is this Emacs's; set `capd-session'")))
    (capd-ask method (append params (list :session key)) timeout)))

;;; Commands

(defun capd--changes (result)
  "Return the changes of the list of tools in RESULT, as lines for a person."
  (let ((changed (plist-get result :changed)))
    (mapconcat #'identity
               (append (mapcar (lambda (name) (concat "+ " name)) (plist-get changed :added))
                       (mapcar (lambda (name) (concat "- " name)) (plist-get changed :removed)))
               "\n")))

(defun capd--say (&rest texts)
  "Show TEXTS, a line each, and return them."
  (let ((text (string-join (seq-remove #'string-empty-p texts) "\n")))
    (message "%s" text)
    text))

;;;###autoload
(defun capd-status ()
  "Show the daemon, its sessions, and what is on in each."
  (interactive)
  (let* ((status (capd-ask "status"))
         (daemon (plist-get status :daemon)))
    (apply #'capd--say
           (format "capd %s, pid %s" (plist-get daemon :version) (plist-get daemon :pid))
           (mapcar (lambda (each)
                     (format "%s (%s): %s" (plist-get each :key) (plist-get each :client)
                             (or (mapconcat (lambda (on) (plist-get on :name))
                                            (plist-get each :active) ", ")
                                 "")))
                   (plist-get status :sessions)))))

;;;###autoload
(defun capd-turn (text)
  "Send TEXT to capd, as if the user had written it to a model."
  (interactive "sSay: ")
  (let ((turn (capd-ask-session "turn" (list :text text :mute t) 150)))
    (unless (string-empty-p (or (plist-get turn :problem) ""))
      (signal 'capd-error (list (plist-get turn :problem))))
    (capd--say (string-trim (format "%s %s" (plist-get turn :outcome) (or (plist-get turn :name) "")))
               (capd--changes turn))))

(defun capd--switch (method name)
  "Ask METHOD, `enable' or `disable', for the capability NAME."
  (let ((result (capd-ask-session method (list :name name) 660)))
    (unless (plist-get result :ok)
      (signal 'capd-error (list (plist-get result :text))))
    (capd--say (plist-get result :text) (capd--changes result))))

(defun capd--read-capability (prompt)
  "Read the name of a capability with PROMPT."
  (completing-read prompt (mapcar (lambda (each) (plist-get each :name))
                                  (plist-get (capd-ask "caps") :capabilities))))

;;;###autoload
(defun capd-enable (name)
  "Switch the capability NAME on."
  (interactive (list (capd--read-capability "Enable: ")))
  (capd--switch "enable" name))

;;;###autoload
(defun capd-disable (name)
  "Switch the capability NAME off."
  (interactive (list (capd--read-capability "Disable: ")))
  (capd--switch "disable" name))

(defun capd-tools ()
  "Return the names of the tools that this Emacs's session lists."
  (mapcar (lambda (tool) (plist-get tool :name))
          (plist-get (capd-ask-session "tools") :tools)))

(defun capd-call (name arguments)
  "Call the tool NAME with the plist ARGUMENTS and return its text."
  (let ((called (capd-ask-session
                 "call" (list :name name :arguments (or arguments (make-hash-table))) 3600)))
    (mapconcat (lambda (block) (or (plist-get block :text) ""))
               (plist-get (plist-get called :result) :content) "\n")))

;;; gptel, mcp.el

(defun capd--prompt (words until)
  "Return the params of `turn' for WORDS; the prompt is sent at the time UNTIL."
  (let ((left (- (float-time (time-subtract until nil)) capd--saying)))
    (list :text words
          :mute (if (< left capd--least) t :false)
          :patience (max left capd--least))))

(defun capd--last-words ()
  "Return what the user wrote after the last response in gptel's buffer."
  (save-excursion
    (let ((from (point-max)))
      (while (and (> from (point-min))
                  (not (eq (get-text-property (1- from) 'gptel) 'response)))
        (setq from (previous-single-property-change from 'gptel nil (point-min))))
      (string-trim (buffer-substring-no-properties from (point-max))))))

;;;###autoload
(defun capd-gptel-transform (callback _info)
  "Send the user's message to capd before gptel sends it, then call CALLBACK.
For `gptel-prompt-transform-functions'.  capd's text for the model is added at
the end of the prompt."
  (let* ((buffer (current-buffer))
         (words (capd--last-words))
         (is-done nil)
         (timer nil)
         (finish (lambda (context)
                   (unless is-done
                     (setq is-done t)
                     (when timer (cancel-timer timer))
                     (when (and (buffer-live-p buffer) (not (string-empty-p context)))
                       (with-current-buffer buffer
                         (save-excursion
                           (goto-char (point-max))
                           (insert "\n\n" context))))
                     (funcall callback)))))
    (if (string-empty-p words)
        (funcall finish "")
      (setq timer (run-at-time capd-budget nil finish ""))
      (capd-ask-session-async
       "turn" (apply-partially #'capd--prompt words (time-add nil capd-budget))
       (lambda (_err turn)
         (funcall finish (or (plist-get turn :context) "")))))))

(defun capd--shim ()
  "Return the command that starts capd's shim."
  (let ((launcher (expand-file-name
                   "bin/capd-mcp"
                   (if (capd--variable "CAPD_HOME")
                       (expand-file-name "data" (capd--variable "CAPD_HOME"))
                     (expand-file-name "capd" (or (capd--xdg "XDG_DATA_HOME")
                                                  "~/.local/share"))))))
    (cond (capd-command capd-command)
          ((file-executable-p launcher) (list launcher))
          (t '("capd" "mcp")))))

;;;###autoload
(defun capd-mcp-hub-entry ()
  "Return the entry of `mcp-hub-servers' that connects mcp.el to capd."
  (let ((shim (capd--shim)))
    (list "capd"
          :command (car shim)
          :args (cdr shim)
          :env (list :CAPD_SESSION (capd-session-key) :CAPD_CLIENT "emacs"))))

(provide 'capd)
;;; capd.el ends here
