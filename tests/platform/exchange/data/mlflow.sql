BEGIN TRANSACTION;
CREATE TABLE "experiments" (
	experiment_id INTEGER NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	artifact_location VARCHAR(256), 
	lifecycle_stage VARCHAR(32), 
	creation_time BIGINT, 
	last_update_time BIGINT, 
	workspace VARCHAR(63) DEFAULT 'default' NOT NULL, 
	CONSTRAINT experiment_pk PRIMARY KEY (experiment_id), 
	CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	CONSTRAINT uq_experiments_workspace_name UNIQUE (workspace, name)
);
INSERT INTO "experiments" VALUES(0,'Default','/made/mlruns/0','active',1795850325407,1795850325407,'default');
INSERT INTO "experiments" VALUES(1,'sweep','/made/mlruns/1','active',1795850325417,1795850325417,'default');
CREATE TABLE "latest_metrics" (
	"key" VARCHAR(250) NOT NULL, 
	value FLOAT NOT NULL, 
	timestamp BIGINT, 
	step BIGINT NOT NULL, 
	is_nan BOOLEAN NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT latest_metric_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid), 
	CHECK (is_nan IN (0, 1))
);
INSERT INTO "latest_metrics" VALUES('loss',0.125,1795850325719,3,0,'f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "latest_metrics" VALUES('eval/top1',0.375,1795850325699,30,0,'f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "latest_metrics" VALUES('loss',3.0,1795850325791,0,0,'8a361e71555342be8cafe3251c5d2ed3');
CREATE TABLE "metrics" (
	"key" VARCHAR(250) NOT NULL, 
	value FLOAT NOT NULL, 
	timestamp BIGINT NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	step BIGINT DEFAULT '0' NOT NULL, 
	is_nan BOOLEAN DEFAULT '0' NOT NULL, 
	CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid), 
	CHECK (is_nan IN (0, 1))
);
INSERT INTO "metrics" VALUES('loss',1.0,1795850325516,'f27723f85c3f4b1fba8efad6c501fb59',0,0);
INSERT INTO "metrics" VALUES('eval/top1',0.0,1795850325551,'f27723f85c3f4b1fba8efad6c501fb59',0,0);
INSERT INTO "metrics" VALUES('loss',0.0,1795850325579,'f27723f85c3f4b1fba8efad6c501fb59',1,1);
INSERT INTO "metrics" VALUES('eval/top1',0.125,1795850325607,'f27723f85c3f4b1fba8efad6c501fb59',10,0);
INSERT INTO "metrics" VALUES('loss',1.79769313486231562234e+308,1795850325624,'f27723f85c3f4b1fba8efad6c501fb59',2,0);
INSERT INTO "metrics" VALUES('eval/top1',0.25,1795850325651,'f27723f85c3f4b1fba8efad6c501fb59',20,0);
INSERT INTO "metrics" VALUES('loss',0.25,1795850325675,'f27723f85c3f4b1fba8efad6c501fb59',3,0);
INSERT INTO "metrics" VALUES('eval/top1',0.375,1795850325699,'f27723f85c3f4b1fba8efad6c501fb59',30,0);
INSERT INTO "metrics" VALUES('loss',0.125,1795850325719,'f27723f85c3f4b1fba8efad6c501fb59',3,0);
INSERT INTO "metrics" VALUES('loss',3.0,1795850325791,'8a361e71555342be8cafe3251c5d2ed3',0,0);
CREATE TABLE "params" (
	"key" VARCHAR(250) NOT NULL, 
	value VARCHAR(8000) NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO "params" VALUES('lr','0.1','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "params" VALUES('model.width','64','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "params" VALUES('model.layers','[1, 2]','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "params" VALUES('flip','True','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "params" VALUES('warmup','None','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "params" VALUES('optimizer','adam','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "params" VALUES('optimizer.beta','0.90','f27723f85c3f4b1fba8efad6c501fb59');
CREATE TABLE "runs" (
	run_uuid VARCHAR(32) NOT NULL, 
	name VARCHAR(250), 
	source_type VARCHAR(20), 
	source_name VARCHAR(500), 
	entry_point_name VARCHAR(50), 
	user_id VARCHAR(256), 
	status VARCHAR(9), 
	start_time BIGINT, 
	end_time BIGINT, 
	source_version VARCHAR(50), 
	lifecycle_stage VARCHAR(20), 
	artifact_uri VARCHAR(200), 
	experiment_id INTEGER, deleted_time BIGINT, 
	CONSTRAINT run_pk PRIMARY KEY (run_uuid), 
	CONSTRAINT source_type CHECK (source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', 'PROJECT')), 
	CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id), 
	CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING', 'KILLED'))
);
INSERT INTO "runs" VALUES('f27723f85c3f4b1fba8efad6c501fb59','one','UNKNOWN','','','someone','FINISHED',1795850325441,1795850325739,'','active','/made/mlruns/1/f27723f85c3f4b1fba8efad6c501fb59/artifacts',1,NULL);
INSERT INTO "runs" VALUES('8a361e71555342be8cafe3251c5d2ed3','two','UNKNOWN','','','someone','KILLED',1795850325764,1795850325814,'','active','/made/mlruns/1/8a361e71555342be8cafe3251c5d2ed3/artifacts',1,NULL);
INSERT INTO "runs" VALUES('6dca809f5486407cbfcb3069e9fc87b8','deleted','UNKNOWN','','','someone','FINISHED',1795850325836,1795850325867,'','deleted','/made/mlruns/1/6dca809f5486407cbfcb3069e9fc87b8/artifacts',1,1795850325893);
CREATE TABLE "tags" (
	"key" VARCHAR(250) NOT NULL, 
	value VARCHAR(8000), 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT tag_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO "tags" VALUES('mlflow.user','someone','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('mlflow.source.name','make_data.py','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('mlflow.source.type','LOCAL','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('mlflow.source.git.commit','6ecd620d4efb2925cbfc389d88db0ab8158454d1','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('mlflow.source.git.branch','adopt','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('team','vision','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('mlflow.note.content','Some notes.','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('mlflow.runName','one','f27723f85c3f4b1fba8efad6c501fb59');
INSERT INTO "tags" VALUES('mlflow.user','someone','8a361e71555342be8cafe3251c5d2ed3');
INSERT INTO "tags" VALUES('mlflow.source.name','make_data.py','8a361e71555342be8cafe3251c5d2ed3');
INSERT INTO "tags" VALUES('mlflow.source.type','LOCAL','8a361e71555342be8cafe3251c5d2ed3');
INSERT INTO "tags" VALUES('mlflow.source.git.commit','6ecd620d4efb2925cbfc389d88db0ab8158454d1','8a361e71555342be8cafe3251c5d2ed3');
INSERT INTO "tags" VALUES('mlflow.source.git.branch','adopt','8a361e71555342be8cafe3251c5d2ed3');
INSERT INTO "tags" VALUES('mlflow.runName','two','8a361e71555342be8cafe3251c5d2ed3');
INSERT INTO "tags" VALUES('mlflow.user','someone','6dca809f5486407cbfcb3069e9fc87b8');
INSERT INTO "tags" VALUES('mlflow.source.name','make_data.py','6dca809f5486407cbfcb3069e9fc87b8');
INSERT INTO "tags" VALUES('mlflow.source.type','LOCAL','6dca809f5486407cbfcb3069e9fc87b8');
INSERT INTO "tags" VALUES('mlflow.source.git.commit','6ecd620d4efb2925cbfc389d88db0ab8158454d1','6dca809f5486407cbfcb3069e9fc87b8');
INSERT INTO "tags" VALUES('mlflow.source.git.branch','adopt','6dca809f5486407cbfcb3069e9fc87b8');
INSERT INTO "tags" VALUES('mlflow.runName','deleted','6dca809f5486407cbfcb3069e9fc87b8');
CREATE INDEX index_metrics_run_uuid ON metrics (run_uuid);
CREATE INDEX index_latest_metrics_run_uuid ON latest_metrics (run_uuid);
CREATE INDEX index_params_run_uuid ON params (run_uuid);
CREATE INDEX index_tags_run_uuid ON tags (run_uuid);
CREATE INDEX idx_experiments_workspace ON experiments (workspace);
CREATE INDEX idx_experiments_workspace_creation_time ON experiments (workspace, creation_time);
CREATE INDEX index_metrics_run_uuid_key_step ON metrics (run_uuid, "key", step);
COMMIT;
